"""What networks are made of: a batch norm and what follows it, convolutions, linear layers."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.errors import UsageError
from scommer.gpu.gradient_sink import GradientSink
from scommer.gpu.switches import has_kernels
from scommer.nn.functional import conv2d, conv2d_into, linear_into
from scommer.nn.sparse_coding import Threshold, k_wta, rank

Parts = tuple[int, ...] | None  # sizes of the parts of a batch that are normalised apart


class Signal(NamedTuple):
    """What a layer passes on, twice: to the next convolution, and past it to the residual sum.

    Both are the same values; on a GPU each has a gradient of its own, which are added up where they are needed.
    """

    x: Tensor
    skip: Tensor
    fired: Tensor | None = None  # [B, N] bool, where asked for
    pooled: Tensor | None = None  # [B, N] mean over the map, where it is at hand


class Activation:
    """ReLU of the k winners (Algorithm 2), or plain ReLU where no ratio is given."""

    def __init__(self, ratio: float | None, threshold: Threshold = "k") -> None:
        self.ratio, self.threshold = ratio, threshold

    def __call__(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is not None:  # dropout comes first: a silenced unit scores 0
            x = x * keep.reshape(keep.shape + (1,) * (x.dim() - 2)).to(x.dtype)
        return F.relu(x if self.ratio is None else k_wta(x, self.ratio, self.threshold))

    def rank(self, units: int) -> int:
        """The rank of the score that a winner must beat; 0 where all win."""
        return 0 if self.ratio is None else rank(self.ratio, units, self.threshold)


RELU = Activation(None)
MOST_PARTS = 3  # that the fused kernels know


class BatchNorm(nn.Module):
    """Batch normalisation, in which each part of a batch may have statistics of its own, and what follows it.

    With `parts` (sizes that sum to the batch) one pass equals as many passes one after the other: each
    part is normalised by its own mean and variance, and the running statistics follow part by part.
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
        plus: Tensor | None = None,  # added when normalised
        activation: Activation | None = None,
        keep: Tensor | None = None,
        return_fired: bool = False,  # which units fired
    ) -> Signal:
        parts = parts if parts and self.training else (len(x),)
        if self.training and any(n * x[0, 0].numel() <= 1 for n in parts):
            raise UsageError("one value a filter has no variance to normalise by: raise batch, replay or buffer")
        if has_kernels(x) and (self.training or not torch.is_grad_enabled()) and len(parts) <= MOST_PARTS:
            from scommer.gpu import kernels

            rank = activation.rank(x.shape[1]) if activation else 0
            plan = kernels.Plan(parts, self.eps, self.momentum, activation is not None, rank, return_fired)
            answer = kernels.normalise if self.training else kernels.infer
            return Signal(*answer(
                x, self.weight, self.bias, self.running_mean, self.running_var, plan, plus, keep
            ))  # fmt: skip
        y = self._normalise(x) if len(parts) == 1 else torch.cat([self._normalise(part) for part in x.split(parts)])
        y = y if plus is None else y + plus
        y = activation(y, keep) if activation else y
        return Signal(y, y, y.sum((2, 3)) > 0 if return_fired else None)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training, self.momentum, self.eps,
        )  # fmt: skip


class Conv(nn.Conv2d):
    """A convolution without bias. With a `sink`, its weight gradient goes there."""

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
    """A linear layer. With a `sink`, the gradients of its weight and bias go there."""

    sink: GradientSink | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.sink and torch.is_grad_enabled():
            return linear_into(x, self.weight, self.bias, self.sink)
        return super().forward(x)
