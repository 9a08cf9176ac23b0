"""Convolutions and their gradients as matrix products of tiles.

The GPU's tensor memory accelerator (TMA) loads boxes of a tensor and fills what is outside with zeros, which is all
that padding needs. Each program computes one tile of the result and does not split its sum. That leaves room on the
GPU for the work of other streams.
"""

from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from scommer.gpu.ahead import launch
from scommer.gpu.kernels.tensors import PROGRAMS, channels_last, empty

BOX_BYTES = 128  # width of a box along the sum
MIN_PROGRAMS = 64  # fewer leave most of about 132 multiprocessors idle
LONG_SUM = 4096  # terms that are too many for a launch of few programs


def supports_conv(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, ...]) -> bool:
    """Return whether the kernels can compute this convolution: square maps, and channels that fill tiles."""
    outputs, inputs, size, width = weight.shape
    side, step = x.shape[2], stride[0]
    return (
        (x.is_cpu or (torch.version.hip is None and torch.cuda.get_device_capability(x.device) >= (9, 0)))
        and 0 < len(x) * (side // step) ** 2 * outputs < 2**31  # the kernels index with 32 bits
        and (side == x.shape[3] and size == width and step in (1, 2) and set(stride) == {step})
        and (size % 2 == 1 and set(padding) == {size // 2} and (step == 1 or size in (1, 3)))
        and (outputs % 64 == 0 and (inputs % 64 == 0 or (_is_image(inputs, size) and step == 1)) and side % step == 0)
        and ((side // step).bit_count() == 1 and side // step <= 64)
        and weight.data_ptr() % 16 == 0
    )


def faster_than_cudnn(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> bool:
    """Return whether there are enough programs, or the sums are short. If not, cuDNN is faster: it splits sums."""
    pixels = len(x) * (x.shape[2] // stride[0]) ** 2
    return pixels * len(weight) >= MIN_PROGRAMS * 128**2 or weight[0].numel() <= LONG_SUM


def _is_image(inputs: int, size: int) -> bool:
    """Return whether the input has so few channels that the whole sum of an output pixel fits in a tile."""
    return inputs % 64 != 0 and inputs * size**2 <= 64


def conv(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor:
    """conv2d(x, weight), padded to preserve the size of the map, or to halve it with stride 2."""
    return _launch_conv_image(x, weight) if _is_image(*weight.shape[1:3]) else _launch_conv(x, weight, stride[0], False)


def conv_input_gradient(g: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor | None:
    """Return the gradient of `x` from that of the output; None for images, for which there is no kernel."""
    return None if _is_image(*weight.shape[1:3]) else _launch_conv(g, weight, stride[0], True)


def _launch_conv_image(x: Tensor, weight: Tensor) -> Tensor:
    x, w = channels_last(x), weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    (n, inputs, side, _), (outputs, fan_in) = x.shape, w.shape
    y = empty(x, n, side, side, outputs, dtype=x.dtype)
    launch(_conv_image, (triton.cdiv(n * side**2, 128), outputs // 64))(
        x, w, y, n * side**2, outputs, inputs=inputs, side=side, size=weight.shape[2], fan_in=fan_in,
        depth=max(16, triton.next_power_of_2(fan_in)), rows=128, columns=64, num_warps=4,
    )  # fmt: skip
    return y.permute(0, 3, 1, 2)


def _launch_conv(x: Tensor, weight: Tensor, stride: int, transposed: bool) -> Tensor:
    """Convolve x, or with `transposed` compute the gradient of an input from x, the gradient of the output."""
    x, w = channels_last(x), weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    n, inputs, side, _ = x.shape
    outputs, size = weight.shape[1 if transposed else 0], weight.shape[2]
    # The result has large × large pixels: `phases` interleaved maps of small × small.
    small, large, phases = (side, side * stride, stride**2) if transposed else (side // stride, side // stride, 1)
    y = empty(x, n, large, large, outputs, dtype=x.dtype)
    depth, columns = BOX_BYTES // x.itemsize, 128 if outputs % 128 == 0 else 64
    column_tiles, pixels = outputs // columns, n * small**2
    rows = 128 if columns == 128 else 256
    if columns == 128 and triton.cdiv(pixels, rows) * column_tiles * phases < MIN_PROGRAMS:
        rows = 64
    box = _box_shape(small, rows)
    ws = TensorDescriptor.from_tensor(w, [depth, columns] if transposed else [columns, depth])
    launch(_conv, (triton.cdiv(pixels, rows) * column_tiles, phases))(
        _descriptor(x, box, depth, 1 if transposed else stride), ws, y, pixels, outputs, column_tiles, inputs=inputs,
        side=small, stride=stride, size=size, transposed=transposed, samples=box[0], lines=box[1], columns=columns,
        depth=depth, num_warps=4 if rows == 64 else 8, num_stages=4 if rows == 64 else 3,
    )  # fmt: skip
    return y.permute(0, 3, 1, 2)


def conv_weight_gradient(x: Tensor, g: Tensor, out: Tensor, size: int, stride: tuple[int, ...]) -> None:
    """Write the gradient of the weight [O, I, size, size] into `out`, a vector in the order [O, size, size, I]."""
    x, g = channels_last(x), channels_last(g)
    (n, inputs, _, _), (outputs, side) = x.shape, g.shape[1:3]
    image = _is_image(inputs, size)
    rows, columns = 128 if outputs % 128 == 0 and not image else 64, 128 if inputs % 128 == 0 else 64
    depth = 128 if rows == columns == 64 else 64
    boxes = triton.cdiv(n * side**2, depth)
    column_tiles = 1 if image else size**2 * (inputs // columns)
    split = max(1, min(PROGRAMS // (outputs // rows * column_tiles), boxes))
    boxes_each = triton.cdiv(boxes, split)
    split = triton.cdiv(boxes, boxes_each)
    partial = out if split == 1 else empty(x, split, out.numel())
    grid = (outputs // rows * column_tiles, split)
    if image:
        fan_in = out.numel() // outputs
        launch(_conv_image_weight_gradient, grid)(
            x, g, partial, n * side**2, outputs, boxes_each * depth, inputs=inputs, side=side, size=size, fan_in=fan_in,
            rows=rows, columns=max(16, triton.next_power_of_2(fan_in)), depth=depth, num_warps=4, num_stages=3,
        )  # fmt: skip
    else:
        box = _box_shape(side, depth)
        launch(_conv_weight_gradient, grid)(
            _descriptor(x, box, columns, stride[0]), _descriptor(g, box, rows), partial, outputs, column_tiles, boxes,
            boxes_each, inputs=inputs, side=side, stride=stride[0], size=size, samples=box[0], lines=box[1],
            rows=rows, columns=columns, depth=depth,
            num_warps=8 if rows == columns == 128 else 4, num_stages=3 if x.itemsize == 2 else 2,
        )  # fmt: skip
    if split > 1:
        launch(_sum_partials, (triton.cdiv(out.numel(), 128),))(
            partial, out, out.numel(), split, padded_split=triton.next_power_of_2(split), block=128, num_warps=4
        )


def _box_shape(side: int, rows: int) -> tuple[int, int]:
    """Return how many samples, and how many lines of each map, a box of this many pixels has."""
    return max(1, rows // side**2), min(side, max(1, rows // side))


def _descriptor(x: Tensor, box: tuple[int, int], channels: int, stride: int = 1) -> TensorDescriptor:
    """Describe x to the TMA, which loads boxes of it: [samples, lines, 1, columns, channels].

    With stride 2, even and odd lines and columns are dimensions of their own, so that a box holds every second pixel.
    """
    n, c, h, w = x.shape
    shape = [n, h // stride, stride, w // stride, stride * c]
    strides = list(accumulate(reversed(shape[1:]), int.__mul__, initial=1))[::-1]
    return TensorDescriptor(x, shape, strides, [box[0], box[1], 1, w // stride, channels])


@triton.jit
def _conv(
    xs, ws, y, pixels, outputs, column_tiles,
    inputs: tl.constexpr, side: tl.constexpr, stride: tl.constexpr, size: tl.constexpr, transposed: tl.constexpr,
    samples: tl.constexpr, lines: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Σ over taps and inputs, for the pixels of a box and some outputs.

    A transposed convolution of stride 2 has four phases: its pixels by line and column, even or odd. Each phase has its
    own taps: the middle one along an even line or column, the two outer ones (none of a 1×1 kernel) along an odd one.
    """
    i = tl.program_id(0) // column_tiles
    o = (tl.program_id(0) % column_tiles) * columns
    sample = i // (side // lines) * samples
    line = i % (side // lines) * lines
    half: tl.constexpr = size // 2
    steps: tl.constexpr = inputs // depth
    odd_y = tl.program_id(1) // 2
    odd_x = tl.program_id(1) % 2
    taps_across = size
    taps = size * size
    if transposed and stride == 2:
        taps_across = 1 + odd_x * half
        taps = (1 + odd_y * half) * taps_across
        if size == 1:
            taps = tl.where(odd_y + odd_x == 0, 1, 0)
    rows: tl.constexpr = samples * lines * side
    total = tl.zeros((rows, columns), tl.float32)
    for k in range(taps * steps):
        v = k // steps // taps_across
        u = k // steps % taps_across
        c = k % steps * depth
        if transposed and stride == 2:
            box = xs.load([sample, line + v, 0, u, c])
            tap = (half + odd_y * (1 - 2 * v)) * size + half + odd_x * (1 - 2 * u)
            total = tl.dot(
                tl.reshape(box, (rows, depth)), ws.load([c, tap * outputs + o]), total, input_precision="ieee"
            )
        elif transposed:
            box = xs.load([sample, line + half - v, 0, half - u, c])
            w = ws.load([c, (v * size + u) * outputs + o])
            total = tl.dot(tl.reshape(box, (rows, depth)), w, total, input_precision="ieee")
        else:
            dy, dx = v - half, u - half
            if stride == 2:
                py, px = dy & 1, dx & 1
                box = xs.load([sample, line + (dy - py) // 2, py, (dx - px) // 2, px * inputs + c])
            else:
                box = xs.load([sample, line + dy, 0, dx, c])
            w = ws.load([o, (v * size + u) * inputs + c])
            total = tl.dot(tl.reshape(box, (rows, depth)), w.T, total, input_precision="ieee")
    r = i * rows + tl.arange(0, rows)
    inside = r < pixels
    if transposed and stride == 2:
        r = (r // side * 2 + odd_y) * 2 * side + r % side * 2 + odd_x
    pointers = y + r[:, None] * outputs + (o + tl.arange(0, columns))[None, :]
    tl.store(pointers, total.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _conv_weight_gradient(
    xs, gs, partial, outputs, column_tiles, boxes, boxes_each,
    inputs: tl.constexpr, side: tl.constexpr, stride: tl.constexpr, size: tl.constexpr,
    samples: tl.constexpr, lines: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Σ g · x over the pixels of some boxes, for some outputs and some inputs of one tap."""
    o = tl.program_id(0) // column_tiles * rows
    tap = tl.program_id(0) % column_tiles // (inputs // columns)
    i = tl.program_id(0) % (inputs // columns) * columns
    dy = tap // size - size // 2
    dx = tap % size - size // 2
    total = tl.zeros((rows, columns), tl.float32)
    first = tl.program_id(1) * boxes_each
    for box in range(first, tl.minimum(first + boxes_each, boxes)):
        sample = box // (side // lines) * samples
        line = box % (side // lines) * lines
        g = tl.reshape(gs.load([sample, line, 0, 0, o]), (depth, rows))
        if stride == 2:
            py, px = dy & 1, dx & 1
            x = xs.load([sample, line + (dy - py) // 2, py, (dx - px) // 2, px * inputs + i])
        else:
            x = xs.load([sample, line + dy, 0, dx, i])
        total = tl.dot(g.T, tl.reshape(x, (depth, columns)), total, input_precision="ieee")
    fan_in: tl.constexpr = size * size * inputs
    row = (tl.program_id(1) * outputs + o + tl.arange(0, rows))[:, None]
    tl.store(partial + row * fan_in + (tap * inputs + i + tl.arange(0, columns))[None, :], total)


@triton.jit
def _im2col(x, r, pixels, inputs: tl.constexpr, side: tl.constexpr, size: tl.constexpr, j, fan_in: tl.constexpr):
    """The patch around each pixel, [pixels, taps · inputs]."""
    line = r // side % side
    column = r % side
    dy = j // inputs // size - size // 2
    dx = j // inputs % size - size // 2
    v = line[:, None] + dy[None, :]
    u = column[:, None] + dx[None, :]
    inside = (v >= 0) & (v < side) & (u >= 0) & (u < side) & (r < pixels)[:, None] & (j < fan_in)[None, :]
    offsets = (r[:, None] + dy[None, :] * side + dx[None, :]) * inputs + (j % inputs)[None, :]
    return tl.load(x + offsets, mask=inside, other=0)


@triton.jit
def _conv_image(
    x, w, y, pixels, outputs, inputs: tl.constexpr, side: tl.constexpr, size: tl.constexpr, fan_in: tl.constexpr,
    depth: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """A convolution of images, whose whole sum is one product."""
    r = tl.program_id(0) * rows + tl.arange(0, rows)
    o = tl.program_id(1) * columns + tl.arange(0, columns)
    j = tl.arange(0, depth)
    patches = _im2col(x, r, pixels, inputs, side, size, j, fan_in)
    weight = tl.load(w + o[None, :] * fan_in + j[:, None], mask=(j < fan_in)[:, None], other=0)
    total = tl.dot(patches, weight, input_precision="ieee")
    tl.store(y + r[:, None] * outputs + o[None, :], total.to(y.dtype.element_ty), mask=(r < pixels)[:, None])


@triton.jit
def _conv_image_weight_gradient(
    x, g, partial, pixels, outputs, pixels_each,
    inputs: tl.constexpr, side: tl.constexpr, size: tl.constexpr, fan_in: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Σ g · x over some pixels, for some outputs and all inputs and taps."""
    o = tl.program_id(0) * rows + tl.arange(0, rows)
    j = tl.arange(0, columns)
    total = tl.zeros((rows, columns), tl.float32)
    first = tl.program_id(1) * pixels_each
    for start in range(first, tl.minimum(first + pixels_each, pixels), depth):
        r = start + tl.arange(0, depth)
        patches = _im2col(x, r, pixels, inputs, side, size, j, fan_in)
        gradient = tl.load(g + r[:, None] * outputs + o[None, :], mask=(r < pixels)[:, None], other=0)
        total = tl.dot(tl.trans(gradient), patches, total, input_precision="ieee")
    row = (tl.program_id(1) * outputs + o)[:, None]
    tl.store(partial + row * fan_in + j[None, :], total, mask=(j < fan_in)[None, :])


@triton.jit
def _sum_partials(partial, out, n, split, padded_split: tl.constexpr, block: tl.constexpr):
    """Add up the results of the programs that shared a sum."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    s = tl.arange(0, padded_split)
    parts = tl.load(partial + s[:, None] * n + i[None, :], mask=(s < split)[:, None] & (i < n)[None, :], other=0)
    tl.store(out + i, tl.sum(parts, 0), mask=i < n)
