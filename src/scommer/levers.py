"""What makes a step on a GPU fast, each to be left out where its worth is measured or its effect is checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Lever = Literal["kernels", "convolutions", "compiling", "beside"]
LEVERS: dict[Lever, str] = {
    "kernels": "kernels of our own",  # kernels/, all of them
    "convolutions": "convolutions of our own",  # kernels/convolution.py
    "compiling": "small chains compiled",  # compiling.py
    "beside": "streams side by side",  # beside.py
}
assert tuple(LEVERS) == get_args(Lever)
_off: set[Lever] = set()


def on(lever: Lever) -> bool:
    """Whether a lever is in use."""
    return lever not in _off


@contextmanager
def without(*levers: Lever) -> Iterator[None]:
    """In here some levers are left out, by learners that are made in here too."""
    added = set(levers) - _off
    _off.update(added)
    try:
        yield
    finally:
        _off.difference_update(added)
