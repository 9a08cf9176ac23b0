"""Update all weights of a network and their half-precision copy in one pass."""

import triton
import triton.language as tl
from torch import Tensor

from scommer.gpu.ahead import launch

BLOCK = 4096  # weights that a program updates


def descend(theta: Tensor, half: Tensor | None, gradient: Tensor, lr: float) -> None:
    """θ ← θ - lr · gradient."""
    _launch(theta, half, gradient, -lr, lerp=False)


def lerp(theta: Tensor, half: Tensor | None, target: Tensor, weight: Tensor) -> None:
    """θ ← θ + weight · (target - θ). Reads and writes no weights if the weight is 0."""
    _launch(theta, half, target, weight, lerp=True)


def _launch(theta: Tensor, half: Tensor | None, other: Tensor, weight: Tensor | float, lerp: bool) -> None:
    n = theta.numel()
    launch(_update, (triton.cdiv(n, BLOCK),))(
        theta, half, other, weight, n, lerp=lerp, has_half=half is not None, block=BLOCK, num_warps=8
    )


@triton.jit
def _update(theta, half, other, weight, n, lerp: tl.constexpr, has_half: tl.constexpr, block: tl.constexpr):
    """θ + weight · other, or with `lerp` θ + weight · (other - θ), where `weight` points to a number."""
    w = tl.load(weight) if lerp else weight
    if w != 0:
        i = tl.program_id(0) * block + tl.arange(0, block)
        if tl.program_id(0) * block + block <= n:  # unmasked loads are wider
            _update_block(theta, half, other, w, i, None, lerp, has_half)
        else:
            _update_block(theta, half, other, w, i, i < n, lerp, has_half)


@triton.jit
def _update_block(theta, half, other, w, i, mask, lerp: tl.constexpr, has_half: tl.constexpr):
    v = tl.load(theta + i, mask)
    direction = tl.load(other + i, mask)
    if lerp:
        direction -= v
    v += w * direction
    tl.store(theta + i, v, mask)
    if has_half:
        tl.store(half + i, v.to(half.dtype.element_ty), mask)
