"""Updates of all weights of a network, and of their copy in half precision, in one pass."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # weights that a program updates


def descend(theta: Tensor, half: Tensor | None, gradient: Tensor, lr: float) -> None:
    """Weights less lr · gradient."""
    _launch(theta, half, gradient, -lr, towards=False)


def approach(theta: Tensor, half: Tensor | None, target: Tensor, share: Tensor) -> None:
    """Weights a share of the way to a target; nothing is read or written where the share is 0."""
    _launch(theta, half, target, share, towards=True)


def _launch(theta: Tensor, half: Tensor | None, other: Tensor, share: Tensor | float, towards: bool) -> None:
    n = theta.numel()
    _move[(triton.cdiv(n, BLOCK),)](
        theta, half, other, share, n, towards=towards, halve=half is not None, block=BLOCK, num_warps=8
    )


@triton.jit
def _move(theta, half, other, share, n, towards: tl.constexpr, halve: tl.constexpr, block: tl.constexpr):
    """θ + share · other, or θ + share · (other - θ)."""
    part = tl.load(share) if towards else share
    if part != 0:
        i = tl.program_id(0) * block + tl.arange(0, block)
        if tl.program_id(0) * block + block <= n:  # without a mask, loads are wide
            _move_some(theta, half, other, part, i, None, towards, halve)
        else:
            _move_some(theta, half, other, part, i, i < n, towards, halve)


@triton.jit
def _move_some(theta, half, other, part, i, mask, towards: tl.constexpr, halve: tl.constexpr):
    v = tl.load(theta + i, mask)
    way = tl.load(other + i, mask)
    if towards:
        way -= v
    v += part * way
    tl.store(theta + i, v, mask)
    if halve:
        tl.store(half + i, v.to(half.dtype.element_ty), mask)
