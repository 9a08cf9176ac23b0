"""Convolution and linear functions that compute their weight gradients on a side stream."""

from typing import Any

import torch
from torch import Tensor

from scommer.gpu.gradient_sink import GradientSink
from scommer.gpu.side_stream import record_event
from scommer.gpu.switches import enabled, has_kernels

Stride = tuple[int, ...]  # or padding: vertical and horizontal


def _has_own_kernel(x: Tensor, weight: Tensor, stride: Stride, padding: Stride) -> bool:
    if weight.dtype != torch.bfloat16 or not has_kernels(x) or not enabled("convolutions"):
        return False
    from scommer.gpu import kernels

    return kernels.supports_conv(x, weight, stride, padding)


def conv2d(x: Tensor, weight: Tensor, stride: Stride, padding: Stride) -> Tensor:
    """Convolve with the fastest kernel available, without a gradient."""
    if _has_own_kernel(x, weight, stride, padding):
        from scommer.gpu import kernels

        if kernels.faster_than_cudnn(x, weight, stride):
            return kernels.conv(x, weight, stride)
    return torch.conv2d(x, weight, None, stride, padding)


class _Conv2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Stride, padding: Stride, sink: GradientSink) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.sink = (stride, padding), sink
        if weight.shape[2:] == (1, 1) and stride != (1, 1) and not _has_own_kernel(x, weight, stride, padding):
            # cuDNN is slow at this: take every second pixel first.
            x, stride = x[:, :, :: stride[0], :: stride[1]].contiguous(memory_format=torch.channels_last), (1, 1)
        return conv2d(x, weight, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (x, weight), (stride, padding) = gradients, ctx.saved_tensors, ctx.shape
        ready, own_kernel, dx = record_event(g.device), _has_own_kernel(x, weight, stride, padding), None
        if own_kernel:
            from scommer.gpu import kernels

        def library_gradients(of_x: bool, of_weight: bool) -> tuple[Tensor, Tensor, Tensor]:
            wanted = (of_x, of_weight, False)
            found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
                g, x, weight, None, stride, padding, (1, 1), False, (0, 0), 1, wanted
            )
            return found

        if ctx.needs_input_grad[0]:
            if own_kernel and kernels.faster_than_cudnn(x, weight, stride):
                dx = kernels.conv_input_gradient(g, weight, stride)
            dx = library_gradients(True, False)[0] if dx is None else dx
        with ctx.sink.side.run(x, g, after=ready):
            if own_kernel and (slot := ctx.sink.claim(weight)) is not None:
                kernels.conv_weight_gradient(x, g, slot, weight.shape[2], stride)
                return dx, None, None, None, None
            _, dweight, _ = library_gradients(False, True)
            ctx.sink.add(weight, dweight)
        return dx, dweight, None, None, None


def conv2d_into(x: Tensor, weight: Tensor, stride: Stride, padding: Stride, sink: GradientSink) -> Tensor:
    """Convolve; the weight gradient goes to `sink`. Join `sink.side` before reading it."""
    y: Tensor = _Conv2d.apply(x, weight, stride, padding, sink)  # type: ignore[no-untyped-call]
    return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, sink: GradientSink) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.sink = sink
        return torch.addmm(bias, x, weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (x, weight, bias) = gradients, ctx.saved_tensors
        ready = record_event(g.device)
        dx = g @ weight if ctx.needs_input_grad[0] else None
        with ctx.sink.side.run(x, g, after=ready):
            dweight, dbias = g.T @ x, g.sum(0)
            ctx.sink.add(weight, dweight)
            ctx.sink.add(bias, dbias)
        return dx, dweight, dbias, None


def linear_into(x: Tensor, weight: Tensor, bias: Tensor, sink: GradientSink) -> Tensor:
    """Apply a linear layer; its gradients go to `sink`. Join `sink.side` before reading them."""
    y: Tensor = _Linear.apply(x, weight, bias, sink)  # type: ignore[no-untyped-call]
    return y
