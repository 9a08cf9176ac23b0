"""Layers of networks: batch norm fused with what follows it, convolutions, linear layers."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.errors import UsageError
from scommer.gpu.gradient_sink import GradientSink
from scommer.gpu.switches import has_kernels
from scommer.nn.functional import conv2d, conv2d_into, linear_into
from scommer.nn.sparse_coding import Threshold, k_wta, threshold_rank

Parts = tuple[int, ...] | None  # sizes of the parts of a batch that are normalised separately


class LayerOutput(NamedTuple):
    """The output of a layer, as input of the next convolution and of the shortcut around it.

    `x` and `skip` hold the same values. On a GPU they are two tensors, so that the batch-norm kernels add up their
    gradients instead of autograd.
    """

    x: Tensor
    skip: Tensor
    fired: Tensor | None = None  # [B, N] bool, if requested
    pooled: Tensor | None = None  # [B, N] mean over the map, if the kernels computed it


class Activation:
    """k-WTA and ReLU (Algorithm 2), or ReLU alone if the ratio is None."""

    def __init__(self, ratio: float | None, threshold: Threshold = "k") -> None:
        self.ratio, self.threshold = ratio, threshold

    def __call__(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is not None:  # before k-WTA: a dropped unit scores 0
            x = x * keep.reshape(keep.shape + (1,) * (x.dim() - 2)).to(x.dtype)
        return F.relu(x if self.ratio is None else k_wta(x, self.ratio, self.threshold))

    def threshold_rank(self, units: int) -> int:
        """Return the rank of the score that winners exceed; 0 if all units win."""
        return 0 if self.ratio is None else threshold_rank(self.ratio, units, self.threshold)


RELU = Activation(None)
MAX_KERNEL_PARTS = 3  # the most that the fused kernels support


class BatchNorm(nn.Module):
    """Batch norm, by parts of a batch, and what follows it: residual sum, dropout mask, activation.

    With `parts` (sizes that sum to the batch), one pass equals one pass for each part, in order: each part is
    normalised with its own mean and variance, and the running statistics are updated part by part.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum, eps = 0.1, 1e-5

    def __init__(self, units: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(units))
        self.bias = nn.Parameter(torch.empty(units))
        self.register_buffer("running_mean", torch.empty(units))
        self.register_buffer("running_var", torch.empty(units))

    def forward(
        self,
        x: Tensor,
        parts: Parts = None,
        *,
        residual: Tensor | None = None,  # added to the normalised x
        activation: Activation | None = None,
        keep: Tensor | None = None,  # dropout mask
        return_fired: bool = False,  # also return which units fired
    ) -> LayerOutput:
        parts = parts if self.training else None
        if self.training and any(n * x[0, 0].numel() <= 1 for n in parts or (len(x),)):
            raise UsageError(
                "batch norm needs more than one value of each filter, but got a single image with maps of one pixel: "
                "raise batch, replay or buffer"
            )
        if has_kernels(x) and (self.training or not torch.is_grad_enabled()) and len(parts or ()) <= MAX_KERNEL_PARTS:
            from scommer.gpu import kernels

            rank = activation.threshold_rank(x.shape[1]) if activation else 0
            plan = kernels.NormPlan(
                parts or (len(x),), self.eps, self.momentum, activation is not None, rank, return_fired
            )
            fused_norm = kernels.fused_norm if self.training else kernels.fused_norm_eval
            return LayerOutput(*fused_norm(
                x, self.weight, self.bias, self.running_mean, self.running_var, plan, residual, keep
            ))  # fmt: skip
        y = torch.cat([self._normalise(part) for part in x.split(parts)]) if parts else self._normalise(x)
        y = y if residual is None else y + residual
        y = activation(y, keep) if activation else y
        return LayerOutput(y, y, y.sum((2, 3)) > 0 if return_fired else None)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training, self.momentum, self.eps,
        )  # fmt: skip


class Conv(nn.Conv2d):
    """A convolution without bias. If it has a `sink`, its weight gradient goes there."""

    sink: GradientSink | None = None

    def __init__(self, inputs: int, units: int, size: int, stride: int) -> None:
        super().__init__(inputs, units, size, stride, size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.sink and torch.is_grad_enabled():
            return conv2d_into(x, self.weight, self.stride, self.padding, self.sink)  # type: ignore[arg-type]
        if not torch.is_grad_enabled():
            return conv2d(x, self.weight, self.stride, self.padding)  # type: ignore[arg-type]
        return super().forward(x)


class Linear(nn.Linear):
    """A linear layer. If it has a `sink`, the gradients of its weight and bias go there."""

    sink: GradientSink | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.sink and torch.is_grad_enabled():
            return linear_into(x, self.weight, self.bias, self.sink)
        return super().forward(x)
