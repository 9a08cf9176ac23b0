"""Allocation and memory layout, shared by all kernels."""

import torch
from torch import Tensor

PROGRAMS = 128  # in a launch that sums over a batch: about one for each multiprocessor


def empty(x: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an uninitialised tensor on the device of x."""
    return torch.empty(shape, device=x.device, dtype=dtype)


def channels_last(x: Tensor) -> Tensor:
    """Return x in the layout that the kernels expect, copied only if necessary."""
    return x.contiguous(memory_format=torch.channels_last)
