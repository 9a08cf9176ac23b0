"""Batch norm fused with what follows it: residual sum, dropout mask, k-WTA, ReLU.

Forward takes three kernels, or four if units compete or are counted. Backward takes three. Each part of a batch may be
normalised on its own: the number of kernels stays the same.
"""

from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from scommer.gpu.ahead import launch
from scommer.gpu.kernels import norm_kernels
from scommer.gpu.kernels.tensors import PROGRAMS, channels_last, empty

MAX_PARTIALS = 32  # programs that share the rows of a part; the next kernel adds up their partial sums

Launch = tuple[tuple[int, ...], dict[str, Any]]  # grid and constants


class NormPlan(NamedTuple):
    """The parts of a batch, the constants of batch norm, and what follows it."""

    parts: tuple[int, ...]  # sizes of the parts that are normalised separately
    eps: float
    momentum: float
    relu: bool
    threshold_rank: int  # k-WTA: winners score above the score of this rank; 0: all units win
    return_fired: bool  # also return which units fired, and the means over their maps


class NormResult(NamedTuple):
    """The result, twice, for two consumers whose gradients arrive separately; `fired` and `pooled` if requested."""

    x: Tensor
    skip: Tensor
    fired: Tensor | None  # [B, N] bool
    pooled: Tensor | None  # [B, N] mean over the map


class _Grid(NamedTuple):
    """How rows and columns are divided among programs."""

    area: int  # rows of a sample
    units: int  # columns in all
    columns: int  # of a tile of a sample
    rows: int  # of a tile of a sample
    split: int  # programs that share the rows of a sample
    partials: int  # programs that share the rows of a part
    part_rows: int  # of a tile of a part
    part_columns: int  # of a tile of a part

    @classmethod
    def of(cls, x: Tensor, parts: tuple[int, ...]) -> "_Grid":
        _, c, h, w = x.shape
        power, area = triton.next_power_of_2, h * w
        columns, part_columns = (min(n, max(16, power(c))) for n in (64, 32))
        rows = min(128, max(16, power(area)))
        split = min(4, triton.cdiv(area, rows))
        share = PROGRAMS // (len(parts) * triton.cdiv(c, part_columns))
        partials = max(1, min(MAX_PARTIALS, 1 << max(0, share.bit_length() - 1)))
        part_rows = min(256, max(16, power(triton.cdiv(max(parts) * area, partials))))
        return cls(area, c, columns, rows, split, partials, part_rows, part_columns)

    def by_part(self, parts: int) -> Launch:
        """Return grid and constants of a kernel that computes partial sums over each part."""
        grid = (self.partials, parts, triton.cdiv(self.units, self.part_columns))
        tile = {"partials": self.partials, "rows": self.part_rows, "columns": self.part_columns, "num_warps": 8}
        return grid, {"area": self.area, "units": self.units, **tile}

    def by_column(self) -> Launch:
        """Return grid and constants of a kernel that adds up the partial sums."""
        tile = {"partials": self.partials, "columns": self.part_columns, "num_warps": 1}
        return (triton.cdiv(self.units, self.part_columns),), {"area": self.area, "units": self.units, **tile}

    def by_sample(self, samples: int) -> Launch:
        """Return grid and constants of a kernel that processes each sample."""
        grid = (samples, triton.cdiv(self.units, self.columns), self.split)
        warps = max(4, min(8, self.rows * self.columns // 1024))
        tile = {"rows": self.rows, "columns": self.columns, "split": self.split}
        return grid, {"area": self.area, "units": self.units, **tile, "num_warps": warps}


def fused_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    plan: NormPlan,
    residual: Tensor | None = None,
    keep: Tensor | None = None,
) -> NormResult:
    """ReLU(k_wta(keep · (batch_norm(x) + residual))) in training. All steps after batch norm are optional."""
    return NormResult(*_FusedNorm.apply(x, weight, bias, residual, keep, running_mean, running_var, plan))


def fused_norm_eval(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    plan: NormPlan,
    residual: Tensor | None = None,
    keep: Tensor | None = None,
) -> NormResult:
    """The same in evaluation: normalised with the running statistics, which do not change, and without gradients."""
    x, scale = channels_last(x), (running_var + plan.eps).rsqrt()
    y, fired, pooled = _apply(x, weight, bias, running_mean, scale, plan, _Grid.of(x, plan.parts), residual, keep)
    return NormResult(y, y, fired, pooled)


def _apply(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    scale: Tensor,
    plan: NormPlan,
    g: "_Grid",
    residual: Tensor | None,
    keep: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Everything after the statistics: return the result, which units fired, and the means over their maps."""
    b, c = x.shape[:2]
    residual = None if residual is None else channels_last(residual)
    keep = None if keep is None else keep.expand(b, c).contiguous()
    grid, constants = g.by_sample(b)
    constants |= {"parts": len(plan.parts), "has_residual": residual is not None, "has_keep": keep is not None}
    inputs = (x, residual, keep, mean, scale, weight, bias, *_bounds(plan.parts))
    scores = empty(x, b, 2, g.split, c) if plan.threshold_rank or plan.return_fired else None
    if scores is not None:
        launch(norm_kernels.unit_scores, grid)(*inputs, scores, **constants)
    y = torch.empty_like(x)
    fired = empty(x, b, c, dtype=torch.bool) if plan.return_fired else None
    pooled = empty(x, b, c) if plan.return_fired and g.split == 1 else None
    launch(norm_kernels.apply, grid)(
        *inputs, scores, y, fired, pooled, plan.threshold_rank, relu=plan.relu, k_wta=plan.threshold_rank > 0,
        return_fired=plan.return_fired, has_pooled=pooled is not None, **constants,
    )  # fmt: skip
    return y, fired, pooled


class _FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        keep: Tensor | None,
        running_mean: Tensor,
        running_var: Tensor,
        plan: NormPlan,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x = channels_last(x)
        parts, c, g = len(plan.parts), x.shape[1], _Grid.of(x, plan.parts)
        sums, mean, scale = empty(x, parts, 2, g.partials, c), empty(x, parts, c), empty(x, parts, c)
        bounds = _bounds(plan.parts)
        grid, constants = g.by_part(parts)
        launch(norm_kernels.partial_sums, grid)(x, sums, *bounds, **constants)
        grid, constants = g.by_column()
        launch(norm_kernels.finish_statistics, grid)(
            x, sums, mean, scale, running_mean, running_var, plan.momentum, *bounds,
            parts=parts, eps=plan.eps, **constants,
        )  # fmt: skip
        y, fired, pooled = _apply(x, weight, bias, mean, scale, plan, g, residual, keep)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y if plan.relu else None, weight, mean, scale)
        ctx.bounds, ctx.grid, ctx.has_residual = bounds, g, residual is not None
        if fired is not None:
            ctx.mark_non_differentiable(fired)
        return y, _alias(y), fired, pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, weight, mean, scale = ctx.saved_tensors
        c, parts, g = x.shape[1], len(mean), ctx.grid
        given = [channels_last(d) for d in gradients[:2] if d is not None]
        pooled = gradients[3]
        if pooled is not None and given:  # the kernels take the gradient of the mean or that of the map, not both
            given[0], pooled = channels_last(given[0] + (pooled / g.area)[:, :, None, None].to(x.dtype)), None
        first, second, *_ = [*given, None, None]
        relu, has_second, has_pooled = y is not None, second is not None, pooled is not None
        sums, corrections = empty(x, parts, 2, g.partials, c), empty(x, parts, 2, c)
        # The gradient of the sum, and so of the residual. It is stored only if it differs from the incoming gradient.
        summed = torch.empty_like(x) if ctx.has_residual and (relu or has_second or has_pooled) else None
        grid, constants = g.by_part(parts)
        launch(norm_kernels.backward_sums, grid)(
            x, y, first, second, pooled, summed, sums, mean, scale, *ctx.bounds,
            relu=relu, has_second=has_second, has_pooled=has_pooled, has_summed=summed is not None, **constants,
        )  # fmt: skip
        if summed is not None:
            first, relu, has_second, has_pooled = summed, False, False, False
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        grid, constants = g.by_column()
        launch(norm_kernels.finish_backward, grid)(
            sums, corrections, scale, dweight, dbias, *ctx.bounds, parts=parts, **constants
        )
        grid, constants = g.by_sample(len(x))
        launch(norm_kernels.input_gradient, grid)(
            x, y, first, second, pooled, dx, corrections, mean, scale, weight, *ctx.bounds,
            parts=parts, relu=relu, has_second=has_second, has_pooled=has_pooled, **constants,
        )  # fmt: skip
        return dx, dweight, dbias, first if ctx.has_residual else None, None, None, None, None


def _alias(x: Tensor) -> Tensor:
    """Return a tensor that shares memory with x, but is not a view of x to autograd."""
    return x.new_empty(0).set_(x)


def _bounds(parts: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the sample at which each part ends, of at most three parts."""
    b1, b2, b3, *_ = [*accumulate(parts), sum(parts), sum(parts)]
    return b1, b2, b3
