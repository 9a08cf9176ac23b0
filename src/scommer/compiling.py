"""Chains of small operations made into one kernel each: on a GPU, while a graph of them is recorded."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import ParamSpec, TypeVar

import torch

from scommer.levers import on

P = ParamSpec("P")
T = TypeVar("T")

_on = False


@contextmanager
def compiling() -> Iterator[None]:
    """In here the functions marked `compiled` are."""
    global _on
    before, _on = _on, on("compiling")
    limit = torch._dynamo.config.patch(recompile_limit=256) if _on else nullcontext()  # sizes and settings are many
    try:
        with limit:
            yield
    finally:
        _on = before


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Marks a pure function of tensors, whose other arguments are constants, to be compiled where it pays."""
    fast: Callable[P, T] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast
        if not _on:
            return function(*args, **kwargs)
        fast = fast or torch.compile(function, dynamic=False, fullgraph=True)
        return fast(*args, **kwargs)

    return call
