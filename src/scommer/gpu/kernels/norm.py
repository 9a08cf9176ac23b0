"""A batch norm and all that follows it: residual sum, dropout mask, k-WTA, ReLU.

Three kernels forward, four where units compete or are counted, and three backward, whatever parts the batch has.
"""

from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from scommer.gpu.kernels import norm_programs as programs
from scommer.gpu.kernels.tensors import PROGRAMS, new, rows_of

MEASURERS = 32  # of them at most that share a part's rows: what follows adds up their sums


class Plan(NamedTuple):
    """What follows a batch norm, and how the batch is parted."""

    parts: tuple[int, ...]
    eps: float
    momentum: float
    activate: bool  # ReLU
    rank: int  # the score of this rank is the threshold of k-WTA; 0: all units win
    return_fired: bool  # which units fired, and the mean of their maps


class Told(NamedTuple):
    """The result twice, for two readers that each send back a gradient of their own, and what is told of it."""

    x: Tensor
    skip: Tensor
    fired: Tensor | None  # [B, N] bool
    pooled: Tensor | None  # [B, N] mean over the map


class _Grid(NamedTuple):
    """How rows and columns are shared out."""

    area: int  # rows of a sample
    units: int  # columns in all
    columns: int  # of a tile
    rows: int  # of a tile of a sample
    split: int  # programs that share a sample's rows
    measurers: int  # programs that share a part's rows
    long: int  # rows of a tile of a part
    narrow: int  # and its columns

    @classmethod
    def of(cls, x: Tensor, parts: tuple[int, ...]) -> "_Grid":
        _, c, h, w = x.shape
        power, area = triton.next_power_of_2, h * w
        columns, narrow = (min(n, max(16, power(c))) for n in (64, 32))
        rows = min(128, max(16, power(area)))
        split = min(4, triton.cdiv(area, rows))
        share = PROGRAMS // (len(parts) * triton.cdiv(c, narrow))
        measurers = max(1, min(MEASURERS, 1 << max(0, share.bit_length() - 1)))
        long = min(256, max(16, power(triton.cdiv(max(parts) * area, measurers))))
        return cls(area, c, columns, rows, split, measurers, long, narrow)

    def over_parts(self, parts: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
        """Programs that sum over each part, and the shape of their tiles."""
        grid = (self.measurers, parts, triton.cdiv(self.units, self.narrow))
        shape = {"measurers": self.measurers, "rows": self.long, "columns": self.narrow, "num_warps": 8}
        return grid, {"area": self.area, "units": self.units, **shape}

    def over_columns(self) -> tuple[tuple[int], dict[str, Any]]:
        """Programs that add up what was summed."""
        shape = {"measurers": self.measurers, "columns": self.narrow, "num_warps": 1}
        return (triton.cdiv(self.units, self.narrow),), {"area": self.area, "units": self.units, **shape}

    def over_samples(self, samples: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
        """Programs that go over each sample, and the shape of their tiles."""
        grid = (samples, triton.cdiv(self.units, self.columns), self.split)
        warps = max(4, min(8, self.rows * self.columns // 1024))
        shape = {"rows": self.rows, "columns": self.columns, "split": self.split}
        return grid, {"area": self.area, "units": self.units, **shape, "num_warps": warps}


def normalise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    plan: Plan,
    plus: Tensor | None = None,
    keep: Tensor | None = None,
) -> Told:
    """ReLU(k_wta(keep · (batch_norm(x) + plus))), or as much of it as is wanted."""
    return Told(*_Normalise.apply(x, weight, bias, plus, keep, running_mean, running_var, plan))


def infer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    plan: Plan,
    plus: Tensor | None = None,
    keep: Tensor | None = None,
) -> Told:
    """The same with the running statistics, which stay as they are, and without gradients."""
    x, scale = rows_of(x), (running_var + plan.eps).rsqrt()
    y, fired, pooled = _answer(x, weight, bias, running_mean, scale, plan, _Grid.of(x, plan.parts), plus, keep)
    return Told(y, y, fired, pooled)


def _answer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    scale: Tensor,
    plan: Plan,
    g: "_Grid",
    plus: Tensor | None,
    keep: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """All that follows the statistics of a batch norm: the result, which units fired, the means of their maps."""
    b, c = x.shape[:2]
    plus = None if plus is None else rows_of(plus)
    keep = None if keep is None else keep.expand(b, c).contiguous()
    grid, shape = g.over_samples(b)
    shape |= {"parts": len(plan.parts), "add": plus is not None, "drop": keep is not None}
    read = (x, plus, keep, mean, scale, weight, bias, *_bounds(plan.parts))
    scores = new(x, b, 2, g.split, c) if plan.rank or plan.return_fired else None
    if scores is not None:
        programs.score[grid](*read, scores, **shape)
    y = torch.empty_like(x)
    fired = new(x, b, c, dtype=torch.bool) if plan.return_fired else None
    pooled = new(x, b, c) if plan.return_fired and g.split == 1 else None
    programs.respond[grid](
        *read, scores, y, fired, pooled, plan.rank, activate=plan.activate, compete=plan.rank > 0,
        return_fired=plan.return_fired, pool=pooled is not None, **shape,
    )  # fmt: skip
    return y, fired, pooled


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        plus: Tensor | None,
        keep: Tensor | None,
        running_mean: Tensor,
        running_var: Tensor,
        plan: Plan,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x = rows_of(x)
        parts, c, g = len(plan.parts), x.shape[1], _Grid.of(x, plan.parts)
        sums, mean, scale = new(x, parts, 2, g.measurers, c), new(x, parts, c), new(x, parts, c)
        bounds = _bounds(plan.parts)
        grid, shape = g.over_parts(parts)
        programs.measure[grid](x, sums, *bounds, **shape)
        alone, few = g.over_columns()
        programs.settle[alone](
            x, sums, mean, scale, running_mean, running_var, plan.momentum, *bounds, parts=parts, eps=plan.eps, **few
        )
        y, fired, pooled = _answer(x, weight, bias, mean, scale, plan, g, plus, keep)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y if plan.activate else None, weight, mean, scale)
        ctx.bounds, ctx.grid, ctx.added = bounds, g, plus is not None
        if fired is not None:
            ctx.mark_non_differentiable(fired)
        return y, _alias(y), fired, pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, weight, mean, scale = ctx.saved_tensors
        c, parts, g = x.shape[1], len(mean), ctx.grid
        given = [rows_of(d) for d in gradients[:2] if d is not None]
        pooled = gradients[3]
        if pooled is not None and given:  # the kernels know one or the other
            given[0], pooled = rows_of(given[0] + (pooled / g.area)[:, :, None, None].to(x.dtype)), None
        first, second, *_ = [*given, None, None]
        masked, twice, pool = y is not None, second is not None, pooled is not None
        sums, levels = new(x, parts, 2, g.measurers, c), new(x, parts, 2, c)
        kept = torch.empty_like(x) if ctx.added and (masked or twice or pool) else None
        grid, shape = g.over_parts(parts)
        programs.weigh[grid](
            x, y, first, second, pooled, kept, sums, mean, scale, *ctx.bounds,
            masked=masked, twice=twice, pool=pool, keep=kept is not None, **shape,
        )  # fmt: skip
        if kept is not None:
            first, masked, twice, pool = kept, False, False, False
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        alone, few = g.over_columns()
        programs.settle_back[alone](sums, levels, scale, dweight, dbias, *ctx.bounds, parts=parts, **few)
        grid, shape = g.over_samples(len(x))
        programs.give_back[grid](
            x, y, first, second, pooled, dx, levels, mean, scale, weight, *ctx.bounds,
            parts=parts, masked=masked, twice=twice, pool=pool, **shape,
        )  # fmt: skip
        return dx, dweight, dbias, first if ctx.added else None, None, None, None, None


def _alias(x: Tensor) -> Tensor:
    """The same values as a tensor of their own: no view, as far as autograd is concerned."""
    return x.new_empty(0).set_(x)


def _bounds(parts: tuple[int, ...]) -> tuple[int, int, int]:
    """Where each part ends, of three at most."""
    b1, b2, b3, *_ = [*accumulate(parts), sum(parts), sum(parts)]
    return b1, b2, b3
