"""The programs of `norm`: what each does with its tile of rows and columns."""

import triton
import triton.language as tl


@triton.jit
def _limits(p, b1, b2, b3, area: tl.constexpr):
    """The first row of part p, and the one after its last."""
    first = tl.where(p == 0, 0, tl.where(p == 1, b1, b2))
    last = tl.where(p == 0, b1, tl.where(p == 1, b2, b3))
    return first * area, last * area


@triton.jit
def _share(p, i, b1, b2, b3, area: tl.constexpr, measurers: tl.constexpr):
    """The first row of part p, and the rows from which and up to which program i sums."""
    first, last = _limits(p, b1, b2, b3, area)
    each = tl.cdiv(last - first, measurers)
    start = first + i * each
    return first, start, tl.minimum(start + each, last)


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
def measure(
    x, sums, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, measurers: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Sums of x and x² over some rows of a part, relative to its first row lest digits be lost."""
    i, p = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * columns + tl.arange(0, columns)
    real = c < units
    first, start, end = _share(p, i, b1, b2, b3, area, measurers)
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
def settle(
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
def _terms(
    keep, means, scales, weight, bias, sample, c, b1, b2, units: tl.constexpr, parts: tl.constexpr, drop: tl.constexpr
):  # fmt: skip
    """What a sample's values are made with: mean, slope and offset of its part's batch norm, its dropout mask."""
    real = c < units
    p = _part(sample, b1, b2, parts)
    mean = tl.load(means + p * units + c, mask=real, other=0)
    slope = tl.load(scales + p * units + c, mask=real, other=0) * tl.load(weight + c, mask=real, other=0)
    offset = tl.load(bias + c, mask=real, other=0)
    kept = tl.load(keep + sample * units + c, mask=real, other=0) if drop else offset
    return mean, slope, offset, kept


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
def score(
    x, plus, keep, means, scales, weight, bias, b1, b2, b3, scores,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, add: tl.constexpr, drop: tl.constexpr,
):  # fmt: skip
    """Σ|v| of each unit over some rows of a sample, and its highest v."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    real = c < units
    mean, slope, offset, kept = _terms(
        keep, means, scales, weight, bias, sample, c, b1, b2, units, parts, drop
    )  # fmt: skip
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
def respond(
    x, plus, keep, means, scales, weight, bias, b1, b2, b3, scores, y, fired, pooled, rank,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, add: tl.constexpr, drop: tl.constexpr,
    activate: tl.constexpr, compete: tl.constexpr, return_fired: tl.constexpr, pool: tl.constexpr,
):  # fmt: skip
    """Some units of some rows of a sample: normalised, added to, dropped, silenced by the winners, activated."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    real = c < units
    mean, slope, offset, kept = _terms(
        keep, means, scales, weight, bias, sample, c, b1, b2, units, parts, drop
    )  # fmt: skip
    won = real
    if compete:
        own = _total_score(scores, sample, c, units, split)
        others = tl.zeros((columns, columns), tl.int32)  # that score as high, itself among them
        for start in tl.static_range(0, units, columns):
            other = _total_score(scores, sample, start + tl.arange(0, columns), units, split)
            others += (other[None, :] >= own[:, None]).to(tl.int32)
        won = real & (tl.sum(others, 1) < rank)  # above the score of that rank
    if return_fired:  # noqa: SIM102
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
def weigh(
    x, y, first, second, pooled, kept, sums, means, scales, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, measurers: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    masked: tl.constexpr, twice: tl.constexpr, pool: tl.constexpr, keep: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient and of its product with the normalised x, over some rows of a part."""
    i, p = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * columns + tl.arange(0, columns)
    real = c < units
    _, start, end = _share(p, i, b1, b2, b3, area, measurers)
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
def settle_back(
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
def give_back(
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
