"""Compile the Triton kernels of a function side by side before it runs: one after the other takes a minute."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from scommer.gpu.switches import TRITON, enabled

_ahead = False


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """Return a function that launches a Triton kernel or, inside `compiling_ahead`, only starts to compile it."""
    return partial(kernel.warmup, grid=grid) if _ahead else kernel[grid]


def can_compile_ahead(device: torch.device) -> bool:
    """Return whether there are kernels to compile on this device, and a Triton that compiles several at a time."""
    if device.type != "cuda" or not TRITON or not enabled("kernels"):
        return False
    import triton

    return hasattr(triton, "AsyncCompileMode")


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Inside, launch no kernel: compile them on all cores, and wait for that at the end. Results are not computed."""
    import triton

    global _ahead
    # Backward passes stay in this thread, because Triton's mode counts for one thread only.
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        triton.AsyncCompileMode(pool),
        torch.autograd.set_multithreading_enabled(False),
    ):
        _ahead = True
        try:
            yield
        finally:
            _ahead = False
