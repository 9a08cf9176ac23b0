"""Updates of all weights of a network, and of their copy in half precision, in one pass."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # weights that a program updates


def descend(theta: Tensor, half: Tensor | None, gradient: Tensor, lr: float) -> None:
    """Weights less lr · gradient, and their copy in half precision, in one pass."""
    n = theta.numel()
    _descend[(triton.cdiv(n, BLOCK),)](theta, half, gradient, lr, n, halve=half is not None, block=BLOCK, num_warps=8)


@triton.jit
def _descend(theta, half, gradient, lr, n, halve: tl.constexpr, block: tl.constexpr):
    start = tl.program_id(0) * block
    if start + block <= n:  # without a mask, loads are wide
        _descend_some(theta, half, gradient, lr, start + tl.arange(0, block), None, halve)
    else:
        i = start + tl.arange(0, block)
        _descend_some(theta, half, gradient, lr, i, i < n, halve)


@triton.jit
def _descend_some(theta, half, gradient, lr, i, mask, halve: tl.constexpr):
    v = tl.load(theta + i, mask) - lr * tl.load(gradient + i, mask)
    tl.store(theta + i, v, mask)
    if halve:
        tl.store(half + i, v.to(half.dtype.element_ty), mask)


def approach(theta: Tensor, half: Tensor | None, target: Tensor, share: Tensor) -> None:
    """Weights a share of the way to a target, and their copy in half precision; nothing where the share is 0."""
    n = theta.numel()
    _approach[(triton.cdiv(n, BLOCK),)](theta, half, target, share, n, halve=half is not None, block=BLOCK, num_warps=8)


@triton.jit
def _approach(theta, half, target, share, n, halve: tl.constexpr, block: tl.constexpr):
    part = tl.load(share)
    if part != 0:
        start = tl.program_id(0) * block
        if start + block <= n:
            _approach_some(theta, half, target, part, start + tl.arange(0, block), None, halve)
        else:
            i = start + tl.arange(0, block)
            _approach_some(theta, half, target, part, i, i < n, halve)


@triton.jit
def _approach_some(theta, half, target, part, i, mask, halve: tl.constexpr):
    v = tl.load(theta + i, mask)
    v += part * (tl.load(target + i, mask) - v)
    tl.store(theta + i, v, mask)
    if halve:
        tl.store(half + i, v.to(half.dtype.element_ty), mask)
