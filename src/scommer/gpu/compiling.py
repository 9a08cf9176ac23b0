"""Compile chains of small operations into one kernel each, while a step is captured on a GPU."""

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
    """Run functions marked `compiled` in their compiled form."""
    global _compiling
    before, _compiling = _compiling, enabled("compiling")
    # Sizes and settings vary more than the default limit allows.
    limit = torch._dynamo.config.patch(recompile_limit=256) if _compiling else nullcontext()
    try:
        with limit:
            yield
    finally:
        _compiling = before


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a pure function of tensors, whose other arguments are constants, for compilation inside `compiling`."""
    fast: Callable[P, T] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast
        if not _compiling:
            return function(*args, **kwargs)
        fast = fast or torch.compile(function, dynamic=False, fullgraph=True)
        return fast(*args, **kwargs)

    return call
