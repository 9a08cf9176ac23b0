"""Fused kernels of a training step on a GPU: the only room that knows Triton.

Sums are taken in a fixed order, so that a step is repeatable to the bit. The plain expressions of `layers`, `beside`
and `weights` are their reference.

Images lie channels-last: a tensor [B, C, H, W] is rows [B·H·W, C] in memory, of which a program takes a tile.
"""

from scommer.gpu.kernels.convolution import convolve, convolve_back, fits, kernel_gradient, spreads
from scommer.gpu.kernels.norm import Plan, Told, infer, normalise
from scommer.gpu.kernels.update import approach, descend

__all__ = [
    "Plan", "Told", "approach", "convolve", "convolve_back", "descend", "fits", "infer", "kernel_gradient",
    "normalise", "spreads",
]  # fmt: skip
