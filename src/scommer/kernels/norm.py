"""A batch norm and all that follows it: residual sum, dropout mask, k-WTA, ReLU.

Three kernels forward, four where units compete, and three backward, whatever parts the batch has.
"""

from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from scommer.kernels.tensors import PROGRAMS, new, rows_of

MEASURERS = 32  # of them at most that share a part's rows: what follows adds up their sums


class Plan(NamedTuple):
    """What follows a batch norm, and how the batch is parted."""

    parts: tuple[int, ...]
    eps: float
    momentum: float
    activate: bool  # ReLU
    rank: int  # the score of this rank is the threshold of k-WTA; 0: all units win
    tell: bool  # which units fired, and the mean of their maps


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
        programs = (self.measurers, parts, triton.cdiv(self.units, self.narrow))
        shape = {"measurers": self.measurers, "rows": self.long, "columns": self.narrow, "num_warps": 8}
        return programs, {"area": self.area, "units": self.units, **shape}

    def over_columns(self) -> tuple[tuple[int], dict[str, Any]]:
        """Programs that add up what was summed."""
        shape = {"measurers": self.measurers, "columns": self.narrow, "num_warps": 1}
        return (triton.cdiv(self.units, self.narrow),), {"area": self.area, "units": self.units, **shape}

    def over_samples(self, samples: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
        """Programs that go over each sample, and the shape of their tiles."""
        programs = (samples, triton.cdiv(self.units, self.columns), self.split)
        warps = max(4, min(8, self.rows * self.columns // 1024))
        shape = {"rows": self.rows, "columns": self.columns, "split": self.split}
        return programs, {"area": self.area, "units": self.units, **shape, "num_warps": warps}


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
    programs, shape = g.over_samples(b)
    shape |= {"parts": len(plan.parts), "add": plus is not None, "drop": keep is not None}
    read = (x, plus, keep, mean, scale, weight, bias, *_bounds(plan.parts))
    scores = new(x, b, 2, g.split, c) if plan.rank or plan.tell else None
    if scores is not None:
        _score[programs](*read, scores, **shape)
    y = torch.empty_like(x)
    fired = new(x, b, c, dtype=torch.bool) if plan.tell else None
    pooled = new(x, b, c) if plan.tell and g.split == 1 else None
    _respond[programs](
        *read, scores, y, fired, pooled, plan.rank, activate=plan.activate, compete=plan.rank > 0,
        tell=plan.tell, pool=pooled is not None, **shape,
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
        programs, shape = g.over_parts(parts)
        _measure[programs](x, sums, *bounds, **shape)
        alone, few = g.over_columns()
        _settle[alone](
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
        programs, shape = g.over_parts(parts)
        _weigh[programs](
            x, y, first, second, pooled, kept, sums, mean, scale, *ctx.bounds,
            masked=masked, twice=twice, pool=pool, keep=kept is not None, **shape,
        )  # fmt: skip
        if kept is not None:
            first, masked, twice, pool = kept, False, False, False
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        alone, few = g.over_columns()
        _settle_back[alone](sums, levels, scale, dweight, dbias, *ctx.bounds, parts=parts, **few)
        programs, shape = g.over_samples(len(x))
        _return[programs](
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


@triton.jit
def _limits(p, b1, b2, b3, area: tl.constexpr):
    """The first row of part p, and the one after its last."""
    first = tl.where(p == 0, 0, tl.where(p == 1, b1, b2))
    last = tl.where(p == 0, b1, tl.where(p == 1, b2, b3))
    return first * area, last * area


@triton.jit
def _part(sample, b1, b2, parts: tl.constexpr):
    """The part that a sample belongs to."""
    p = sample * 0
    if parts > 1:
        p += (sample >= b1).to(tl.int32)
    if parts > 2:
        p += (sample >= b2).to(tl.int32)
    return p


@triton.jit
def _measure(
    x, sums, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, measurers: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Sums of x and x² over some rows of a part, relative to its first row lest digits be lost."""
    i, p = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * columns + tl.arange(0, columns)
    real = c < units
    first, last = _limits(p, b1, b2, b3, area)
    each = tl.cdiv(last - first, measurers)
    start = first + i * each
    end = tl.minimum(start + each, last)
    origin = tl.load(x + first * units + c, mask=real, other=0).to(tl.float32)
    s = tl.zeros((rows, columns), tl.float32)
    q = tl.zeros((rows, columns), tl.float32)
    for row in range(start, end, rows):
        r = row + tl.arange(0, rows)
        inside = (r < end)[:, None] & real[None, :]
        v = tl.load(x + r[:, None] * units + c[None, :], mask=inside, other=0).to(tl.float32) - origin[None, :]
        v = tl.where(inside, v, 0.0)
        s += v
        q += v * v
    at = (p * 2 * measurers + i) * units + c
    tl.store(sums + at, tl.sum(s, 0), mask=real)
    tl.store(sums + at + measurers * units, tl.sum(q, 0), mask=real)


@triton.jit
def _total(sums, p, kind: tl.constexpr, c, units: tl.constexpr, measurers: tl.constexpr):
    """A part's sum of one kind, added up from those of its programs."""
    i = tl.arange(0, measurers)
    at = ((p * 2 + kind) * measurers + i)[:, None] * units + c[None, :]
    return tl.sum(tl.load(sums + at, mask=(c < units)[None, :], other=0), 0)


@triton.jit
def _settle(
    x, sums, means, scales, running_mean, running_var, momentum, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, measurers: tl.constexpr, columns: tl.constexpr, parts: tl.constexpr,
    eps: tl.constexpr,
):  # fmt: skip
    """Mean and 1/deviation of each part; the running statistics follow part by part."""
    c = tl.program_id(0) * columns + tl.arange(0, columns)
    real = c < units
    m = tl.load(running_mean + c, mask=real, other=0)
    v = tl.load(running_var + c, mask=real, other=0)
    for p in tl.static_range(parts):
        first, last = _limits(p, b1, b2, b3, area)
        n = (last - first).to(tl.float32)
        shift = _total(sums, p, 0, c, units, measurers) / n
        mean = tl.load(x + first * units + c, mask=real, other=0).to(tl.float32) + shift
        variance = _total(sums, p, 1, c, units, measurers) / n - shift * shift
        variance = tl.where(variance < 0, 0.0, variance)  # lets NaN through
        tl.store(means + p * units + c, mean, mask=real)
        tl.store(scales + p * units + c, 1 / tl.sqrt(variance + eps), mask=real)
        m += momentum * (mean - m)
        v += momentum * (variance * n / (n - 1) - v)
    tl.store(running_mean + c, m, mask=real)
    tl.store(running_var + c, v, mask=real)


@triton.jit
def _value(
    x, plus, at, inside, mean, slope, offset, kept, add: tl.constexpr, drop: tl.constexpr
):  # fmt: skip
    """keep · (batch_norm(x) + plus) of some rows of a sample."""
    v = (tl.load(x + at, mask=inside, other=0).to(tl.float32) - mean[None, :]) * slope[None, :] + offset[None, :]
    if add:
        v += tl.load(plus + at, mask=inside, other=0).to(tl.float32)
    if drop:
        v = v * kept[None, :]
    return tl.where(inside, v, 0.0)


@triton.jit
def _score(
    x, plus, keep, means, scales, weight, bias, b1, b2, b3, scores,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, add: tl.constexpr, drop: tl.constexpr,
):  # fmt: skip
    """Σ|v| of each unit over some rows of a sample, and its highest v."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    real = c < units
    p = _part(sample, b1, b2, parts)
    mean = tl.load(means + p * units + c, mask=real, other=0)
    slope = tl.load(scales + p * units + c, mask=real, other=0) * tl.load(weight + c, mask=real, other=0)
    offset = tl.load(bias + c, mask=real, other=0)
    kept = tl.load(keep + sample * units + c, mask=real, other=0) if drop else offset
    total = tl.zeros((rows, columns), tl.float32)
    peak = tl.zeros((rows, columns), tl.float32)
    each: tl.constexpr = (area + split - 1) // split
    for row in range(0, each, rows):
        r = row + tl.arange(0, rows)
        inside = ((r < each) & (r < area - i * each))[:, None] & real[None, :]
        at = (sample * area + i * each + r)[:, None] * units + c[None, :]
        v = _value(x, plus, at, inside, mean, slope, offset, kept, add, drop)
        total += tl.abs(v)
        peak = tl.maximum(peak, v)
    at = (sample * 2 * split + i) * units + c
    tl.store(scores + at, tl.sum(total, 0), mask=real)
    tl.store(scores + at + split * units, tl.max(peak, 0), mask=real)


@triton.jit
def _total_score(scores, sample, c, units: tl.constexpr, split: tl.constexpr):
    """The score of units; -1 for columns that are none."""
    total = tl.zeros_like(c).to(tl.float32)
    for i in tl.static_range(split):
        total += tl.load(scores + (sample * 2 * split + i) * units + c, mask=c < units, other=0)
    return tl.where(c < units, total, -1.0)


@triton.jit
def _respond(
    x, plus, keep, means, scales, weight, bias, b1, b2, b3, scores, y, fired, pooled, rank,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, add: tl.constexpr, drop: tl.constexpr,
    activate: tl.constexpr, compete: tl.constexpr, tell: tl.constexpr, pool: tl.constexpr,
):  # fmt: skip
    """Some units of some rows of a sample: normalised, added to, dropped, silenced by the winners, activated."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    real = c < units
    p = _part(sample, b1, b2, parts)
    mean = tl.load(means + p * units + c, mask=real, other=0)
    slope = tl.load(scales + p * units + c, mask=real, other=0) * tl.load(weight + c, mask=real, other=0)
    offset = tl.load(bias + c, mask=real, other=0)
    kept = tl.load(keep + sample * units + c, mask=real, other=0) if drop else offset
    won = real
    if compete:
        own = _total_score(scores, sample, c, units, split)
        others = tl.zeros((columns, columns), tl.int32)  # that score as high, itself among them
        for start in tl.static_range(0, units, columns):
            other = _total_score(scores, sample, start + tl.arange(0, columns), units, split)
            others += (other[None, :] >= own[:, None]).to(tl.int32)
        won = real & (tl.sum(others, 1) < rank)  # above the score of that rank
    if tell:  # noqa: SIM102
        if i == 0:
            peak = tl.zeros_like(c).to(tl.float32)
            for j in tl.static_range(split):
                peak = tl.maximum(
                    peak, tl.load(scores + ((sample * 2 + 1) * split + j) * units + c, mask=real, other=0)
                )
            tl.store(fired + sample * units + c, won & (peak > 0), mask=real)
    total = tl.zeros((rows, columns), tl.float32)
    each: tl.constexpr = (area + split - 1) // split
    for row in range(0, each, rows):
        r = row + tl.arange(0, rows)
        inside = ((r < each) & (r < area - i * each))[:, None] & real[None, :]
        at = (sample * area + i * each + r)[:, None] * units + c[None, :]
        v = _value(x, plus, at, inside, mean, slope, offset, kept, add, drop)
        if compete:
            v = tl.where(won[None, :], v, 0.0)
        if activate:
            v = tl.where(v <= 0, 0.0, v)  # lets NaN through
        if pool:
            total += v
        tl.store(y + at, v.to(y.dtype.element_ty), mask=inside)
    if pool:
        tl.store(pooled + sample * units + c, tl.sum(total, 0) / area, mask=real)


@triton.jit
def _gradient(
    y, first, second, pooled, r, at, inside, c, area: tl.constexpr, units: tl.constexpr,
    masked: tl.constexpr, twice: tl.constexpr, pool: tl.constexpr,
):  # fmt: skip
    """The gradient of both readers together, or of the mean over the map, where the unit was active."""
    if pool:
        g = tl.load(pooled + (r // area)[:, None] * units + c[None, :], mask=inside, other=0) / area
    else:
        g = tl.load(first + at, mask=inside, other=0).to(tl.float32)
    if twice:
        g += tl.load(second + at, mask=inside, other=0).to(tl.float32)
    if masked:
        g = tl.where(tl.load(y + at, mask=inside, other=0).to(tl.float32) > 0, g, 0.0)
    return g


@triton.jit
def _weigh(
    x, y, first, second, pooled, kept, sums, means, scales, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, measurers: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    masked: tl.constexpr, twice: tl.constexpr, pool: tl.constexpr, keep: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient and of its product with the normalised x, over some rows of a part."""
    i, p = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * columns + tl.arange(0, columns)
    real = c < units
    begin, last = _limits(p, b1, b2, b3, area)
    each = tl.cdiv(last - begin, measurers)
    start = begin + i * each
    end = tl.minimum(start + each, last)
    mean = tl.load(means + p * units + c, mask=real, other=0)
    scale = tl.load(scales + p * units + c, mask=real, other=0)
    s = tl.zeros((rows, columns), tl.float32)
    q = tl.zeros((rows, columns), tl.float32)
    for row in range(start, end, rows):
        r = row + tl.arange(0, rows)
        inside = (r < end)[:, None] & real[None, :]
        at = r[:, None] * units + c[None, :]
        v = tl.load(x + at, mask=inside, other=0).to(tl.float32)
        g = _gradient(y, first, second, pooled, r, at, inside, c, area, units, masked, twice, pool)
        if keep:
            tl.store(kept + at, g.to(kept.dtype.element_ty), mask=inside)
        s += g
        q += g * (v - mean[None, :]) * scale[None, :]
    at = (p * 2 * measurers + i) * units + c
    tl.store(sums + at, tl.sum(s, 0), mask=real)
    tl.store(sums + at + measurers * units, tl.sum(q, 0), mask=real)


@triton.jit
def _settle_back(
    sums, levels, scales, dweight, dbias, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, measurers: tl.constexpr, columns: tl.constexpr, parts: tl.constexpr,
):  # fmt: skip
    """What a part's gradients are to lose, a level and a share along x; the gradients of bias and weight."""
    c = tl.program_id(0) * columns + tl.arange(0, columns)
    real = c < units
    all_s = tl.zeros_like(c).to(tl.float32)
    all_q = tl.zeros_like(c).to(tl.float32)
    for p in tl.static_range(parts):
        first, last = _limits(p, b1, b2, b3, area)
        n = (last - first).to(tl.float32)
        s = _total(sums, p, 0, c, units, measurers)
        q = _total(sums, p, 1, c, units, measurers)
        tl.store(levels + p * 2 * units + c, s / n, mask=real)
        scale = tl.load(scales + p * units + c, mask=real, other=0)
        tl.store(levels + (p * 2 + 1) * units + c, q / n * scale, mask=real)
        all_s += s
        all_q += q
    tl.store(dbias + c, all_s, mask=real)
    tl.store(dweight + c, all_q, mask=real)


@triton.jit
def _return(
    x, y, first, second, pooled, dx, levels, means, scales, weight, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, masked: tl.constexpr, twice: tl.constexpr, pool: tl.constexpr,
):  # fmt: skip
    """The gradient of x: what is left of the gradient without its mean and its share along x."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    real = c < units
    p = _part(sample, b1, b2, parts)
    s = tl.load(levels + p * 2 * units + c, mask=real, other=0)
    q = tl.load(levels + (p * 2 + 1) * units + c, mask=real, other=0)
    mean = tl.load(means + p * units + c, mask=real, other=0)
    scale = tl.load(scales + p * units + c, mask=real, other=0)
    slope = scale * tl.load(weight + c, mask=real, other=0)
    each: tl.constexpr = (area + split - 1) // split
    for row in range(0, each, rows):
        r = row + tl.arange(0, rows)
        inside = ((r < each) & (r < area - i * each))[:, None] & real[None, :]
        r += sample * area + i * each
        at = r[:, None] * units + c[None, :]
        v = tl.load(x + at, mask=inside, other=0).to(tl.float32)
        g = _gradient(y, first, second, pooled, r, at, inside, c, area, units, masked, twice, pool)
        d = slope[None, :] * (g - s[None, :] - (v - mean[None, :]) * q[None, :])
        tl.store(dx + at, d.to(dx.dtype.element_ty), mask=inside)
