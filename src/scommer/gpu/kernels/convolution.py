"""Convolutions and their gradients as products of tiles, which the GPU's copy engine brings.

It takes boxes out of a tensor and fills what lies outside with zeros, which is all that padding asks for. Each program
holds one tile of the result and goes through the whole sum for it: this leaves the GPU to others that run beside.
"""

from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from scommer.gpu.kernels.tensors import PROGRAMS, new, rows_of

LINE = 128  # bytes that a box is wide where sums go along it
FEW = 64  # programs, of some 132 multiprocessors
LONG = 4096  # terms of a sum that few programs had better not be left alone with


def fits(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, ...]) -> bool:
    """Whether there are kernels for this convolution: square maps and numbers of units that fill tiles."""
    outputs, inputs, size, across = weight.shape
    side, step = x.shape[2], stride[0]
    return (
        (x.is_cpu or (torch.version.hip is None and torch.cuda.get_device_capability(x.device) >= (9, 0)))
        and 0 < len(x) * (side // step) ** 2 * outputs < 2**31  # they count in 32 bits
        and (side == x.shape[3] and size == across and step in (1, 2) and set(stride) == {step})
        and (size % 2 == 1 and set(padding) == {size // 2} and (step == 1 or size in (1, 3)))
        and (outputs % 64 == 0 and (inputs % 64 == 0 or (_few(inputs, size) and step == 1)) and side % step == 0)
        and ((side // step).bit_count() == 1 and side // step <= 64)
        and weight.data_ptr() % 16 == 0
    )


def spreads(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> bool:
    """Whether the programs are enough, or their sums short enough: else libraries that part the sums are faster."""
    places = len(x) * (x.shape[2] // stride[0]) ** 2
    return places * len(weight) >= FEW * 128**2 or weight[0].numel() <= LONG


def _few(inputs: int, size: int) -> bool:
    """Whether all that a place sees of an image, colours and neighbours, fits a tile."""
    return inputs % 64 != 0 and inputs * size**2 <= 64


def convolve(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor:
    """conv2d(x, weight), padded to keep the map (or to halve it)."""
    return _convolve_image(x, weight) if _few(*weight.shape[1:3]) else _convolve(x, weight, stride[0], back=False)


def convolve_back(g: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor | None:
    """The gradient of its x, from that of its result; None where no kernel knows it (it is not asked for of images)."""
    return None if _few(*weight.shape[1:3]) else _convolve(g, weight, stride[0], back=True)


def _convolve_image(x: Tensor, weight: Tensor) -> Tensor:
    x, w = rows_of(x), weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    (n, inputs, side, _), (outputs, wide) = x.shape, w.shape
    y = new(x, n, side, side, outputs, dtype=x.dtype)
    _conv_image[(triton.cdiv(n * side**2, 128), outputs // 64)](
        x, w, y, n * side**2, outputs, inputs=inputs, side=side, size=weight.shape[2], wide=wide,
        deep=max(16, triton.next_power_of_2(wide)), rows=128, tile=64, num_warps=4,
    )  # fmt: skip
    return y.permute(0, 3, 1, 2)


def _convolve(x: Tensor, weight: Tensor, stride: int, back: bool) -> Tensor:
    x, w = rows_of(x), weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    n, inputs, side, _ = x.shape
    outputs, size = weight.shape[1 if back else 0], weight.shape[2]
    small, large, classes = (side, side * stride, stride**2) if back else (side // stride, side // stride, 1)
    y = new(x, n, large, large, outputs, dtype=x.dtype)
    deep, tile = LINE // x.itemsize, 128 if outputs % 128 == 0 else 64
    tiles, places = outputs // tile, n * small**2
    rows = 128 if tile == 128 else 256
    if tile == 128 and triton.cdiv(places, rows) * tiles * classes < FEW:
        rows = 64
    box = _box(small, rows)
    ws = TensorDescriptor.from_tensor(w, [deep, tile] if back else [tile, deep])
    _add_taps[(triton.cdiv(places, rows) * tiles, classes)](
        _boxes(x, box, deep, 1 if back else stride), ws, y, places, outputs, tiles, inputs=inputs, side=small,
        stride=stride, size=size, back=back, samples=box[0], down=box[1], tile=tile, deep=deep,
        num_warps=4 if rows == 64 else 8, num_stages=4 if rows == 64 else 3,
    )  # fmt: skip
    return y.permute(0, 3, 1, 2)


def kernel_gradient(x: Tensor, g: Tensor, place: Tensor, size: int, stride: tuple[int, ...]) -> None:
    """The gradient of its weight [O, I, size, size], written into its place, a vector in [O, size, size, I] order."""
    x, g = rows_of(x), rows_of(g)
    (n, inputs, _, _), (outputs, side) = x.shape, g.shape[1:3]
    image = _few(inputs, size)
    a, b = 128 if outputs % 128 == 0 and not image else 64, 128 if inputs % 128 == 0 else 64
    deep = 128 if a == b == 64 else 64
    boxes = triton.cdiv(n * side**2, deep)
    tiles = 1 if image else size**2 * (inputs // b)
    split = max(1, min(PROGRAMS // (outputs // a * tiles), boxes))
    each = triton.cdiv(boxes, split)
    split = triton.cdiv(boxes, each)
    out = place if split == 1 else new(x, split, place.numel())
    grid = (outputs // a * tiles, split)
    if image:
        wide = place.numel() // outputs
        _conv_image_weight_gradient[grid](
            x, g, out, n * side**2, outputs, each * deep, inputs=inputs, side=side, size=size, wide=wide,
            columns=max(16, triton.next_power_of_2(wide)), tile=a, deep=deep, num_warps=4, num_stages=3,
        )  # fmt: skip
    else:
        box = _box(side, deep)
        _correlate[grid](
            _boxes(x, box, b, stride[0]), _boxes(g, box, a), out, outputs, tiles, boxes, each, inputs=inputs,
            side=side, stride=stride[0], size=size, samples=box[0], down=box[1], tile_o=a, tile_i=b, deep=deep,
            num_warps=8 if a == b == 128 else 4, num_stages=3 if x.itemsize == 2 else 2,
        )  # fmt: skip
    if split > 1:
        _add_up[(triton.cdiv(place.numel(), 128),)](
            out, place, place.numel(), split, parts=triton.next_power_of_2(split), block=128, num_warps=4
        )


def _box(side: int, rows: int) -> tuple[int, int]:
    """How many samples, and how many lines of their maps, make so many rows."""
    return max(1, rows // side**2), min(side, max(1, rows // side))


def _boxes(x: Tensor, box: tuple[int, int], units: int, stride: int = 1) -> TensorDescriptor:
    """What the copy engine must know to take boxes out of x; with a stride, of every second line and column."""
    n, c, h, w = x.shape
    shape = [n, h // stride, stride, w // stride, stride * c]
    steps = list(accumulate(reversed(shape[1:]), int.__mul__, initial=1))[::-1]
    return TensorDescriptor(x, shape, steps, [box[0], box[1], 1, w // stride, units])


@triton.jit
def _add_taps(
    xs, ws, y, places, outputs, tiles,
    inputs: tl.constexpr, side: tl.constexpr, stride: tl.constexpr, size: tl.constexpr, back: tl.constexpr,
    samples: tl.constexpr, down: tl.constexpr, tile: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    """Σ over taps and inputs, for the places of a box and some outputs.

    Going back over a stride of 2, places are of four classes (by line and column, even or odd), each with taps of its
    own: an even one was seen by the middle tap, an odd one by the two beside it (or, where there is one tap, by none).
    """
    i = tl.program_id(0) // tiles
    o = (tl.program_id(0) % tiles) * tile
    sample = i // (side // down) * samples
    line = i % (side // down) * down
    half: tl.constexpr = size // 2
    steps: tl.constexpr = inputs // deep
    odd_y = tl.program_id(1) // 2
    odd_x = tl.program_id(1) % 2
    across = size
    taps = size * size
    if back and stride == 2:
        across = 1 + odd_x * half
        taps = (1 + odd_y * half) * across
        if size == 1:
            taps = tl.where(odd_y + odd_x == 0, 1, 0)
    rows: tl.constexpr = samples * down * side
    total = tl.zeros((rows, tile), tl.float32)
    for k in range(taps * steps):
        v = k // steps // across
        u = k // steps % across
        c = k % steps * deep
        if back and stride == 2:
            box = xs.load([sample, line + v, 0, u, c])
            tap = (half + odd_y * (1 - 2 * v)) * size + half + odd_x * (1 - 2 * u)
            total = tl.dot(
                tl.reshape(box, (rows, deep)), ws.load([c, tap * outputs + o]), total, input_precision="ieee"
            )
        elif back:
            box = xs.load([sample, line + half - v, 0, half - u, c])
            w = ws.load([c, (v * size + u) * outputs + o])
            total = tl.dot(tl.reshape(box, (rows, deep)), w, total, input_precision="ieee")
        else:
            dy, dx = v - half, u - half
            if stride == 2:
                py, px = dy & 1, dx & 1
                box = xs.load([sample, line + (dy - py) // 2, py, (dx - px) // 2, px * inputs + c])
            else:
                box = xs.load([sample, line + dy, 0, dx, c])
            w = ws.load([o, (v * size + u) * inputs + c])
            total = tl.dot(tl.reshape(box, (rows, deep)), w.T, total, input_precision="ieee")
    r = i * rows + tl.arange(0, rows)
    inside = r < places
    if back and stride == 2:
        r = (r // side * 2 + odd_y) * 2 * side + r % side * 2 + odd_x
    at = y + r[:, None] * outputs + (o + tl.arange(0, tile))[None, :]
    tl.store(at, total.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _correlate(
    xs, gs, out, outputs, tiles, boxes, each,
    inputs: tl.constexpr, side: tl.constexpr, stride: tl.constexpr, size: tl.constexpr,
    samples: tl.constexpr, down: tl.constexpr, tile_o: tl.constexpr, tile_i: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    """Σ g · x over some boxes of places, for some outputs and some inputs under a tap."""
    o = tl.program_id(0) // tiles * tile_o
    tap = tl.program_id(0) % tiles // (inputs // tile_i)
    i = tl.program_id(0) % (inputs // tile_i) * tile_i
    dy = tap // size - size // 2
    dx = tap % size - size // 2
    total = tl.zeros((tile_o, tile_i), tl.float32)
    first = tl.program_id(1) * each
    for box in range(first, tl.minimum(first + each, boxes)):
        sample = box // (side // down) * samples
        line = box % (side // down) * down
        g = tl.reshape(gs.load([sample, line, 0, 0, o]), (deep, tile_o))
        if stride == 2:
            py, px = dy & 1, dx & 1
            x = xs.load([sample, line + (dy - py) // 2, py, (dx - px) // 2, px * inputs + i])
        else:
            x = xs.load([sample, line + dy, 0, dx, i])
        total = tl.dot(g.T, tl.reshape(x, (deep, tile_i)), total, input_precision="ieee")
    wide: tl.constexpr = size * size * inputs
    row = (tl.program_id(1) * outputs + o + tl.arange(0, tile_o))[:, None]
    tl.store(out + row * wide + (tap * inputs + i + tl.arange(0, tile_i))[None, :], total)


@triton.jit
def _im2col(x, r, places, inputs: tl.constexpr, side: tl.constexpr, size: tl.constexpr, j, wide: tl.constexpr):
    """What places see of an image, [places, taps · inputs]."""
    v = r // side % side
    u = r % side
    dy = j // inputs // size - size // 2
    dx = j // inputs % size - size // 2
    p = v[:, None] + dy[None, :]
    q = u[:, None] + dx[None, :]
    inside = (p >= 0) & (p < side) & (q >= 0) & (q < side) & (r < places)[:, None] & (j < wide)[None, :]
    at = (r[:, None] + dy[None, :] * side + dx[None, :]) * inputs + (j % inputs)[None, :]
    return tl.load(x + at, mask=inside, other=0)


@triton.jit
def _conv_image(
    x, w, y, places, outputs, inputs: tl.constexpr, side: tl.constexpr, size: tl.constexpr, wide: tl.constexpr,
    deep: tl.constexpr, rows: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """A convolution of images, whose few inputs and taps make one sum."""
    r = tl.program_id(0) * rows + tl.arange(0, rows)
    o = tl.program_id(1) * tile + tl.arange(0, tile)
    j = tl.arange(0, deep)
    seen = _im2col(x, r, places, inputs, side, size, j, wide)
    weight = tl.load(w + o[None, :] * wide + j[:, None], mask=(j < wide)[:, None], other=0)
    total = tl.dot(seen, weight, input_precision="ieee")
    tl.store(y + r[:, None] * outputs + o[None, :], total.to(y.dtype.element_ty), mask=(r < places)[:, None])


@triton.jit
def _conv_image_weight_gradient(
    x, g, out, places, outputs, each, inputs: tl.constexpr, side: tl.constexpr, size: tl.constexpr, wide: tl.constexpr,
    columns: tl.constexpr, tile: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    """Σ g · x over some places, for some outputs and all inputs and taps."""
    o = tl.program_id(0) * tile + tl.arange(0, tile)
    j = tl.arange(0, columns)
    total = tl.zeros((tile, columns), tl.float32)
    first = tl.program_id(1) * each
    for start in range(first, tl.minimum(first + each, places), deep):
        r = start + tl.arange(0, deep)
        seen = _im2col(x, r, places, inputs, side, size, j, wide)
        sent = tl.load(g + r[:, None] * outputs + o[None, :], mask=(r < places)[:, None], other=0)
        total = tl.dot(tl.trans(sent), seen, total, input_precision="ieee")
    row = (tl.program_id(1) * outputs + o)[:, None]
    tl.store(out + row * wide + j[None, :], total, mask=(j < wide)[None, :])


@triton.jit
def _add_up(found, out, n, split, parts: tl.constexpr, block: tl.constexpr):
    """Σ over what programs found that shared a sum."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    s = tl.arange(0, parts)
    all_ = tl.load(found + s[:, None] * n + i[None, :], mask=(s < split)[:, None] & (i < n)[None, :], other=0)
    tl.store(out + i, tl.sum(all_, 0), mask=i < n)
