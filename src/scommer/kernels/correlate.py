"""The gradient of a convolution's weight, straight into its place: images correlated with gradients."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from scommer.kernels.tensors import PROGRAMS, new, rows_of

DEEP = 64  # positions that a program multiplies at once


def kernel_gradient(
    x: Tensor, g: Tensor, place: Tensor, size: tuple[int, int], stride: tuple[int, ...], padding: tuple[int, ...]
) -> None:
    """The gradient of a convolution's weight [O, I, *size], written into its place, a vector in [O, *size, I] order."""
    x, g = rows_of(x), rows_of(g)
    inputs, outputs, n = x.shape[1], g.shape[1], len(x) * g.shape[2] * g.shape[3]
    wide = inputs * size[0] * size[1]
    a = min(128, max(16, triton.next_power_of_2(outputs)))
    whole = inputs % 64 == 0  # a tile's columns belong to one tap
    b = (128 if inputs % 128 == 0 else 64) if whole else max(16, min(128, triton.next_power_of_2(wide)))
    tiles = triton.cdiv(outputs, a), triton.cdiv(wide, b)
    split = max(1, min(PROGRAMS // (tiles[0] * tiles[1]), triton.cdiv(n, 256)))
    each = triton.cdiv(triton.cdiv(n, split), DEEP) * DEEP
    out = place if split == 1 else new(x, split, outputs * wide)
    _correlate[(tiles[0] * tiles[1], split)](
        x, g, out, n, outputs, tiles[1], each, inputs=inputs, whole=whole,
        height=x.shape[2], width=x.shape[3], rows=g.shape[2], columns=g.shape[3], down=stride[0], right=stride[1],
        above=padding[0], before=padding[1], taps=size[0] * size[1], across=size[1], tile_o=a, tile_i=b, deep=DEEP,
        exact=x.dtype == torch.float32, num_warps=8 if a * b >= 128 * 128 else 4, num_stages=4,
    )  # fmt: skip
    if split > 1:
        _add_up[(triton.cdiv(outputs * wide, 1024),)](out, place, outputs * wide, split, block=1024)


@triton.jit
def _correlate(
    x, g, out, n, outputs, tiles, each,
    inputs: tl.constexpr, whole: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, down: tl.constexpr, right: tl.constexpr,
    above: tl.constexpr, before: tl.constexpr, taps: tl.constexpr, across: tl.constexpr,
    tile_o: tl.constexpr, tile_i: tl.constexpr, deep: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    """Σ g · x over some positions, for some outputs and the inputs under a tap (or several, where inputs are few)."""
    o = (tl.program_id(0) // tiles) * tile_o + tl.arange(0, tile_o)
    j = (tl.program_id(0) % tiles) * tile_i + tl.arange(0, tile_i)
    if whole:
        tap = ((tl.program_id(0) % tiles) * tile_i) // inputs
        first = ((tl.program_id(0) % tiles) * tile_i) % inputs
        i = first + tl.arange(0, tile_i)
        dy, dx = tap // across - above, tap % across - before
    else:
        i = j % inputs
        dy, dx = (j // inputs) // across - above, (j // inputs) % across - before
    total = tl.zeros((tile_o, tile_i), tl.float32)
    start = tl.program_id(1) * each
    end = tl.minimum(start + each, n)
    for r in range(start, end, deep):
        at = r + tl.arange(0, deep)
        sample, place = at // (rows * columns), at % (rows * columns)
        v, u = (place // columns) * down, (place % columns) * right
        if whole:
            p, q = v + dy, u + dx
            good = (at < end) & (p >= 0) & (p < height) & (q >= 0) & (q < width)
            source = ((sample * height + p) * width + q)[:, None] * inputs + i[None, :]
            seen = tl.load(x + source, mask=good[:, None], other=0)
        else:
            p, q = v[:, None] + dy[None, :], u[:, None] + dx[None, :]
            good = (at < end)[:, None] & (p >= 0) & (p < height) & (q >= 0) & (q < width) & (j < taps * inputs)[None, :]
            seen = tl.load(x + ((sample[:, None] * height + p) * width + q) * inputs + i[None, :], mask=good, other=0)
        sent = tl.load(
            g + at[:, None] * outputs + o[None, :], mask=(at < end)[:, None] & (o < outputs)[None, :], other=0
        )
        if exact:
            total = tl.dot(tl.trans(sent), seen, total, input_precision="ieee")
        else:
            total = tl.dot(tl.trans(sent), seen, total)
    wide: tl.constexpr = taps * inputs
    where = tl.program_id(1) * outputs * wide + o[:, None] * wide + j[None, :]
    tl.store(out + where, total, mask=(o < outputs)[:, None] & (j < wide)[None, :])


@triton.jit
def _add_up(parts, out, n, split, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for s in range(split):
        total += tl.load(parts + s * n + i, mask=i < n, other=0)
    tl.store(out + i, total, mask=i < n)
