"""The optimisations of a step on a GPU. Each can be switched off, to measure its gain or to check its results."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal, get_args

from torch import Tensor

Switch = Literal["kernels", "convolutions", "compiling", "side-streams"]
SWITCHES: dict[Switch, str] = {  # with the names that bench records use
    "kernels": "kernels of our own",  # kernels/, all of them
    "convolutions": "convolutions of our own",  # kernels/convolution.py
    "compiling": "compiled functions",  # compiling.py
    "side-streams": "streams side by side",  # side_stream.py
}
assert tuple(SWITCHES) == get_args(Switch)
TRITON = find_spec("triton") is not None
_off: set[Switch] = set()


def enabled(switch: Switch) -> bool:
    """Return whether an optimisation is on."""
    return switch not in _off


@contextmanager
def without(*switches: Switch) -> Iterator[None]:
    """Switch off some optimisations for learners that are created and used inside."""
    added = set(switches) - _off
    _off.update(added)
    try:
        yield
    finally:
        _off.difference_update(added)


def has_kernels(x: Tensor) -> bool:
    """Return whether the Triton kernels can process this tensor: it is on a GPU, and 32 bits can index it."""
    return x.is_cuda and x.numel() < 2**31 and enabled("kernels") and TRITON
