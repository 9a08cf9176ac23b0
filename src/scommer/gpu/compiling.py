"""Fuse chains of small operations with `torch.compile` in steps that are captured on a GPU."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import ParamSpec, TypeVar

import torch

from scommer.gpu.switches import enabled

P = ParamSpec("P")
T = TypeVar("T")

_compiling = False


@contextmanager
def compiling() -> Iterator[None]:
    """Run functions marked `compiled` in their compiled form, unless that is switched off."""
    global _compiling
    before, _compiling = _compiling, enabled("compiling")
    # Each size and each setting is compiled on its own, which exceeds the default limit.
    limit = torch._dynamo.config.patch(recompile_limit=256) if _compiling else nullcontext()
    try:
        with limit:
            yield
    finally:
        _compiling = before


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function inside `compiling`. It must be pure; arguments that are not tensors count as constants."""
    fast: Callable[P, T] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast
        if not _compiling:
            return function(*args, **kwargs)
        fast = fast or torch.compile(function, dynamic=False, fullgraph=True)
        return fast(*args, **kwargs)

    return call
