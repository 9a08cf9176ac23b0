"""Compile the Triton kernels of a function side by side before it runs: one after the other takes a minute."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from scommer.gpu.switches import TRITON, enabled

_ahead = ContextVar("ahead", default=False)  # of this thread: another one may predict meanwhile


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """Return a function that launches a Triton kernel or, inside `compiling_ahead`, only starts to compile it."""
    return partial(kernel.warmup, grid=grid) if _ahead.get() else kernel[grid]


def can_compile_ahead(device: torch.device) -> bool:
    """Return whether there are kernels to compile on this device, and a Triton that compiles several at a time."""
    if device.type != "cuda" or not TRITON or not enabled("kernels"):
        return False
    import triton

    return hasattr(triton, "AsyncCompileMode")


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Inside, launch no Triton kernel: compile them on all cores, and wait for that at the end.

    What such a kernel would compute is undefined.
    """
    import triton

    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(allowed(0)) if allowed else os.cpu_count()
    # Backward passes stay in this thread: both this flag and Triton's mode count for one thread only.
    with (
        ThreadPoolExecutor(cores) as pool,
        triton.AsyncCompileMode(pool),
        torch.autograd.set_multithreading_enabled(False),
    ):
        before = _ahead.set(True)
        try:
            yield
        finally:
            _ahead.reset(before)
