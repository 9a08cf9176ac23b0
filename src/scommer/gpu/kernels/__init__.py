"""Triton kernels of a training step. No other package imports Triton.

Sums are taken in a fixed order, so that a step repeats bit for bit. The reference is the plain PyTorch code in
`nn.layers`, `nn.functional` and `nn.weights`.

Tensors are channels-last: [B, C, H, W] is stored as rows [B·H·W, C]. Each program processes a tile of rows and columns.
"""

from scommer.gpu.kernels.convolution import (
    conv,
    conv_input_gradient,
    conv_weight_gradient,
    faster_than_cudnn,
    supports_conv,
)
from scommer.gpu.kernels.norm import NormPlan, NormResult, fused_norm, fused_norm_eval
from scommer.gpu.kernels.update import descend, lerp

__all__ = [
    "NormPlan", "NormResult", "conv", "conv_input_gradient", "conv_weight_gradient", "descend", "faster_than_cudnn",
    "fused_norm", "fused_norm_eval", "lerp", "supports_conv",
]  # fmt: skip
