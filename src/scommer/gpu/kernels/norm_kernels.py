"""The Triton kernels of `norm`. Each program processes a tile of rows and columns."""

import triton
import triton.language as tl


@triton.jit
def _part_bounds(p, b1, b2, b3, area: tl.constexpr):
    """Return the range of rows of part p."""
    first = tl.where(p == 0, 0, tl.where(p == 1, b1, b2))
    end = tl.where(p == 0, b1, tl.where(p == 1, b2, b3))
    return first * area, end * area


@triton.jit
def _program_rows(p, i, b1, b2, b3, area: tl.constexpr, partials: tl.constexpr):
    """Return the first row of part p, and the range of rows that program i sums."""
    first, end = _part_bounds(p, b1, b2, b3, area)
    rows_each = tl.cdiv(end - first, partials)
    start = first + i * rows_each
    return first, start, tl.minimum(start + rows_each, end)


@triton.jit
def _part_of(sample, b1, b2, parts: tl.constexpr):
    """Return the part that a sample belongs to."""
    p = sample * 0
    if parts > 1:
        p += (sample >= b1).to(tl.int32)
    if parts > 2:
        p += (sample >= b2).to(tl.int32)
    return p


@triton.jit
def partial_sums(
    x, sums, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, partials: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Sum x and x² over some rows of a part, relative to its first row, which avoids cancellation."""
    i, p = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * columns + tl.arange(0, columns)
    valid = c < units
    first, start, end = _program_rows(p, i, b1, b2, b3, area, partials)
    origin = tl.load(x + first * units + c, mask=valid, other=0).to(tl.float32)
    s = tl.zeros((rows, columns), tl.float32)
    q = tl.zeros((rows, columns), tl.float32)
    for row in range(start, end, rows):
        r = row + tl.arange(0, rows)
        inside = (r < end)[:, None] & valid[None, :]
        v = tl.load(x + r[:, None] * units + c[None, :], mask=inside, other=0).to(tl.float32) - origin[None, :]
        v = tl.where(inside, v, 0.0)
        s += v
        q += v * v
    offsets = (p * 2 * partials + i) * units + c
    tl.store(sums + offsets, tl.sum(s, 0), mask=valid)
    tl.store(sums + offsets + partials * units, tl.sum(q, 0), mask=valid)


@triton.jit
def _add_partials(sums, p, which: tl.constexpr, c, units: tl.constexpr, partials: tl.constexpr):
    """Add up one of the two sums of a part over its programs."""
    i = tl.arange(0, partials)
    offsets = ((p * 2 + which) * partials + i)[:, None] * units + c[None, :]
    return tl.sum(tl.load(sums + offsets, mask=(c < units)[None, :], other=0), 0)


@triton.jit
def finish_statistics(
    x, sums, means, scales, running_mean, running_var, momentum, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, partials: tl.constexpr, columns: tl.constexpr, parts: tl.constexpr,
    eps: tl.constexpr,
):  # fmt: skip
    """Compute mean and 1/deviation of each part, and update the running statistics part by part."""
    c = tl.program_id(0) * columns + tl.arange(0, columns)
    valid = c < units
    m = tl.load(running_mean + c, mask=valid, other=0)
    v = tl.load(running_var + c, mask=valid, other=0)
    for p in tl.static_range(parts):
        first, end = _part_bounds(p, b1, b2, b3, area)
        n = (end - first).to(tl.float32)
        shift = _add_partials(sums, p, 0, c, units, partials) / n
        mean = tl.load(x + first * units + c, mask=valid, other=0).to(tl.float32) + shift
        variance = _add_partials(sums, p, 1, c, units, partials) / n - shift * shift
        variance = tl.where(variance < 0, 0.0, variance)  # propagates NaN
        tl.store(means + p * units + c, mean, mask=valid)
        tl.store(scales + p * units + c, 1 / tl.sqrt(variance + eps), mask=valid)
        m += momentum * (mean - m)
        v += momentum * (variance * n / (n - 1) - v)
    tl.store(running_mean + c, m, mask=valid)
    tl.store(running_var + c, v, mask=valid)


@triton.jit
def _norm_terms(
    keep, means, scales, weight, bias, sample, c, b1, b2,
    units: tl.constexpr, parts: tl.constexpr, has_keep: tl.constexpr,
):  # fmt: skip
    """Return the mean, slope and intercept that normalise a sample, and its dropout mask."""
    valid = c < units
    p = _part_of(sample, b1, b2, parts)
    mean = tl.load(means + p * units + c, mask=valid, other=0)
    slope = tl.load(scales + p * units + c, mask=valid, other=0) * tl.load(weight + c, mask=valid, other=0)
    intercept = tl.load(bias + c, mask=valid, other=0)
    kept = tl.load(keep + sample * units + c, mask=valid, other=0) if has_keep else intercept
    return mean, slope, intercept, kept


@triton.jit
def _preactivation(
    x, residual, offsets, inside, mean, slope, intercept, kept, has_residual: tl.constexpr, has_keep: tl.constexpr
):  # fmt: skip
    """keep · (batch_norm(x) + residual) of some rows of a sample."""
    v = tl.load(x + offsets, mask=inside, other=0).to(tl.float32)
    v = (v - mean[None, :]) * slope[None, :] + intercept[None, :]
    if has_residual:
        v += tl.load(residual + offsets, mask=inside, other=0).to(tl.float32)
    if has_keep:
        v = v * kept[None, :]
    return tl.where(inside, v, 0.0)


@triton.jit
def unit_scores(
    x, residual, keep, means, scales, weight, bias, b1, b2, b3, scores,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, has_residual: tl.constexpr, has_keep: tl.constexpr,
):  # fmt: skip
    """Compute the score Σ|v| of each unit over some rows of a sample, and its maximum v."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    valid = c < units
    mean, slope, intercept, kept = _norm_terms(
        keep, means, scales, weight, bias, sample, c, b1, b2, units, parts, has_keep
    )  # fmt: skip
    total = tl.zeros((rows, columns), tl.float32)
    peak = tl.zeros((rows, columns), tl.float32)
    rows_each: tl.constexpr = (area + split - 1) // split
    for row in range(0, rows_each, rows):
        r = row + tl.arange(0, rows)
        inside = ((r < rows_each) & (r < area - i * rows_each))[:, None] & valid[None, :]
        offsets = (sample * area + i * rows_each + r)[:, None] * units + c[None, :]
        v = _preactivation(x, residual, offsets, inside, mean, slope, intercept, kept, has_residual, has_keep)
        total += tl.abs(v)
        peak = tl.maximum(peak, v)
    offsets = (sample * 2 * split + i) * units + c
    tl.store(scores + offsets, tl.sum(total, 0), mask=valid)
    tl.store(scores + offsets + split * units, tl.max(peak, 0), mask=valid)


@triton.jit
def _score(scores, sample, c, units: tl.constexpr, split: tl.constexpr):
    """Return the score of each unit over the whole sample; -1 for columns beyond the last unit."""
    total = tl.zeros_like(c).to(tl.float32)
    for i in tl.static_range(split):
        total += tl.load(scores + (sample * 2 * split + i) * units + c, mask=c < units, other=0)
    return tl.where(c < units, total, -1.0)


@triton.jit
def apply(
    x, residual, keep, means, scales, weight, bias, b1, b2, b3, scores, y, fired, pooled, rank,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, has_residual: tl.constexpr, has_keep: tl.constexpr,
    relu: tl.constexpr, k_wta: tl.constexpr, return_fired: tl.constexpr, has_pooled: tl.constexpr,
):  # fmt: skip
    """ReLU(k_wta(keep · (batch_norm(x) + residual))) of some rows and units of a sample."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    valid = c < units
    mean, slope, intercept, kept = _norm_terms(
        keep, means, scales, weight, bias, sample, c, b1, b2, units, parts, has_keep
    )  # fmt: skip
    wins = valid
    if k_wta:
        own = _score(scores, sample, c, units, split)
        as_high = tl.zeros((columns, columns), tl.int32)  # counts units that score at least as high
        for start in tl.static_range(0, units, columns):
            other = _score(scores, sample, start + tl.arange(0, columns), units, split)
            as_high += (other[None, :] >= own[:, None]).to(tl.int32)
        wins = valid & (tl.sum(as_high, 1) < rank)  # above the score of this rank
    if return_fired:  # noqa: SIM102
        if i == 0:
            peak = tl.zeros_like(c).to(tl.float32)
            for j in tl.static_range(split):
                peak = tl.maximum(
                    peak, tl.load(scores + ((sample * 2 + 1) * split + j) * units + c, mask=valid, other=0)
                )
            tl.store(fired + sample * units + c, wins & (peak > 0), mask=valid)
    total = tl.zeros((rows, columns), tl.float32)
    rows_each: tl.constexpr = (area + split - 1) // split
    for row in range(0, rows_each, rows):
        r = row + tl.arange(0, rows)
        inside = ((r < rows_each) & (r < area - i * rows_each))[:, None] & valid[None, :]
        offsets = (sample * area + i * rows_each + r)[:, None] * units + c[None, :]
        v = _preactivation(x, residual, offsets, inside, mean, slope, intercept, kept, has_residual, has_keep)
        if k_wta:
            v = tl.where(wins[None, :], v, 0.0)
        if relu:
            v = tl.where(v <= 0, 0.0, v)  # propagates NaN
        if has_pooled:
            total += v
        tl.store(y + offsets, v.to(y.dtype.element_ty), mask=inside)
    if has_pooled:
        tl.store(pooled + sample * units + c, tl.sum(total, 0) / area, mask=valid)


@triton.jit
def _output_gradient(
    y, first, second, pooled, r, offsets, inside, c, area: tl.constexpr, units: tl.constexpr,
    relu: tl.constexpr, has_second: tl.constexpr, has_pooled: tl.constexpr,
):  # fmt: skip
    """Return the sum of both gradients, or the gradient of the mean over the map; 0 where ReLU gave 0."""
    if has_pooled:
        g = tl.load(pooled + (r // area)[:, None] * units + c[None, :], mask=inside, other=0) / area
    else:
        g = tl.load(first + offsets, mask=inside, other=0).to(tl.float32)
    if has_second:
        g += tl.load(second + offsets, mask=inside, other=0).to(tl.float32)
    if relu:
        g = tl.where(tl.load(y + offsets, mask=inside, other=0).to(tl.float32) > 0, g, 0.0)
    return g


@triton.jit
def backward_sums(
    x, y, first, second, pooled, summed, sums, means, scales, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, partials: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    relu: tl.constexpr, has_second: tl.constexpr, has_pooled: tl.constexpr, has_summed: tl.constexpr,
):  # fmt: skip
    """Sum the gradient, and its product with the normalised x, over some rows of a part."""
    i, p = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * columns + tl.arange(0, columns)
    valid = c < units
    _, start, end = _program_rows(p, i, b1, b2, b3, area, partials)
    mean = tl.load(means + p * units + c, mask=valid, other=0)
    scale = tl.load(scales + p * units + c, mask=valid, other=0)
    s = tl.zeros((rows, columns), tl.float32)
    q = tl.zeros((rows, columns), tl.float32)
    for row in range(start, end, rows):
        r = row + tl.arange(0, rows)
        inside = (r < end)[:, None] & valid[None, :]
        offsets = r[:, None] * units + c[None, :]
        v = tl.load(x + offsets, mask=inside, other=0).to(tl.float32)
        g = _output_gradient(y, first, second, pooled, r, offsets, inside, c, area, units, relu, has_second, has_pooled)
        if has_summed:
            tl.store(summed + offsets, g.to(summed.dtype.element_ty), mask=inside)
        s += g
        q += g * (v - mean[None, :]) * scale[None, :]
    offsets = (p * 2 * partials + i) * units + c
    tl.store(sums + offsets, tl.sum(s, 0), mask=valid)
    tl.store(sums + offsets + partials * units, tl.sum(q, 0), mask=valid)


@triton.jit
def finish_backward(
    sums, corrections, scales, dweight, dbias, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, partials: tl.constexpr, columns: tl.constexpr, parts: tl.constexpr,
):  # fmt: skip
    """Compute what batch norm subtracts from the gradients of each part, and the gradients of bias and weight."""
    c = tl.program_id(0) * columns + tl.arange(0, columns)
    valid = c < units
    all_s = tl.zeros_like(c).to(tl.float32)
    all_q = tl.zeros_like(c).to(tl.float32)
    for p in tl.static_range(parts):
        first, end = _part_bounds(p, b1, b2, b3, area)
        n = (end - first).to(tl.float32)
        s = _add_partials(sums, p, 0, c, units, partials)
        q = _add_partials(sums, p, 1, c, units, partials)
        tl.store(corrections + p * 2 * units + c, s / n, mask=valid)
        scale = tl.load(scales + p * units + c, mask=valid, other=0)
        tl.store(corrections + (p * 2 + 1) * units + c, q / n * scale, mask=valid)
        all_s += s
        all_q += q
    tl.store(dbias + c, all_s, mask=valid)
    tl.store(dweight + c, all_q, mask=valid)


@triton.jit
def input_gradient(
    x, y, first, second, pooled, dx, corrections, means, scales, weight, b1, b2, b3,
    area: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    split: tl.constexpr, parts: tl.constexpr, relu: tl.constexpr, has_second: tl.constexpr, has_pooled: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of x: the gradient without its mean and its projection on x."""
    sample, i = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * columns + tl.arange(0, columns)
    valid = c < units
    p = _part_of(sample, b1, b2, parts)
    s = tl.load(corrections + p * 2 * units + c, mask=valid, other=0)
    q = tl.load(corrections + (p * 2 + 1) * units + c, mask=valid, other=0)
    mean = tl.load(means + p * units + c, mask=valid, other=0)
    scale = tl.load(scales + p * units + c, mask=valid, other=0)
    slope = scale * tl.load(weight + c, mask=valid, other=0)
    rows_each: tl.constexpr = (area + split - 1) // split
    for row in range(0, rows_each, rows):
        r = row + tl.arange(0, rows)
        inside = ((r < rows_each) & (r < area - i * rows_each))[:, None] & valid[None, :]
        r += sample * area + i * rows_each
        offsets = r[:, None] * units + c[None, :]
        v = tl.load(x + offsets, mask=inside, other=0).to(tl.float32)
        g = _output_gradient(y, first, second, pooled, r, offsets, inside, c, area, units, relu, has_second, has_pooled)
        d = slope[None, :] * (g - s[None, :] - (v - mean[None, :]) * q[None, :])
        tl.store(dx + offsets, d.to(dx.dtype.element_ty), mask=inside)
