"""What makes a step fast on a GPU. Each can be switched off to measure what it gains or to check its effect."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal, get_args

from torch import Tensor

Switch = Literal["kernels", "convolutions", "compiling", "side-streams"]
SWITCHES: dict[Switch, str] = {
    "kernels": "kernels of our own",  # kernels/, all of them
    "convolutions": "convolutions of our own",  # kernels/convolution.py
    "compiling": "small chains compiled",  # compiling.py
    "side-streams": "streams side by side",  # side_stream.py
}
assert tuple(SWITCHES) == get_args(Switch)
TRITON = find_spec("triton") is not None
_off: set[Switch] = set()


def enabled(switch: Switch) -> bool:
    """Whether a switch is on."""
    return switch not in _off


@contextmanager
def without(*switches: Switch) -> Iterator[None]:
    """Switch some off, for learners that are made and used in here."""
    added = set(switches) - _off
    _off.update(added)
    try:
        yield
    finally:
        _off.difference_update(added)


def has_kernels(x: Tensor) -> bool:
    """Whether our fused kernels can process this tensor: on a GPU with Triton; they index with 32 bits."""
    return x.is_cuda and x.numel() < 2**31 and enabled("kernels") and TRITON
