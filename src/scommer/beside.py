"""Work side by side on a GPU: a second stream, for what need not wait its turn. On a CPU all is in turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from scommer.device import fuses
from scommer.levers import on

Event = torch.cuda.Event


def moment(device: torch.device) -> Event | None:
    """The present moment of the present stream: what was asked for so far, and nothing after it."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


class Beside:
    """A stream beside the present one, which goes first where both want the GPU (unless this is `urgent`)."""

    def __init__(self, device: torch.device, urgent: bool = False) -> None:
        wanted = device.type == "cuda" and (urgent or on("beside"))
        self.stream = torch.cuda.Stream(device, priority=-int(urgent)) if wanted else None
        self._held: list[Tensor] = []
        self._before: Event | None = None  # the last work
        self.places: dict[int, Tensor] = {}  # where gradients go, by their parameter's address
        self.delivered: list[int] = []  # and whose have gone there

    @contextmanager
    def working(self, *inputs: Tensor, since: Event | None = None) -> Iterator[None]:
        """What is asked for in here runs beside the present stream, as soon as that has come to `since` (or here).

        The inputs stay as they are until `join`: their memory is not given to anybody else.
        """
        if self.stream is None:
            yield
            return
        if since is None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        else:
            self.stream.wait_event(since)
        self._held += inputs
        with torch.cuda.stream(self.stream):
            self._before = moment(self.stream.device)
            yield

    def deliver(self, parameter: Tensor, gradient: Tensor) -> None:
        """Takes a gradient to its place, if it has one, while others are still being found."""
        if (place := self.empty_place(parameter)) is not None:
            place.copy_(gradient)
        elif parameter.data_ptr() in self.places:  # a second pass of the same layer
            self.places[parameter.data_ptr()].add_(gradient)
            self.delivered.append(parameter.data_ptr())

    def empty_place(self, parameter: Tensor) -> Tensor | None:
        """Where a gradient is to be written, if it has a place and nothing was delivered there yet."""
        address = parameter.data_ptr()
        if address in self.delivered or address not in self.places:
            return None
        self.delivered.append(address)
        return self.places[address]

    def join(self, *results: Tensor, but_last: bool = False) -> None:
        """What the present stream does from here on comes after all that was done beside it (but the last).

        The results' memory is not given to anybody else before the present stream has read them.
        """
        if self.stream is None:
            return
        present = torch.cuda.current_stream(self.stream.device)
        if but_last and self._before is not None:
            present.wait_event(self._before)
            return
        present.wait_stream(self.stream)
        self._held.clear()
        for result in results:
            result.record_stream(present)


Stride = tuple[int, ...]  # down and right, as a padding is


def _own(x: Tensor, weight: Tensor, stride: Stride, padding: Stride) -> bool:
    """Whether a convolution has kernels of its own."""
    if weight.dtype != torch.bfloat16 or not fuses(x) or not on("convolutions"):
        return False
    from scommer import kernels

    return kernels.fits(x, weight, stride, padding)


def convolution(x: Tensor, weight: Tensor, stride: Stride, padding: Stride) -> Tensor:
    """The forward pass of a convolution, by whatever is fastest; it has no gradient of its own."""
    if _own(x, weight, stride, padding):
        from scommer import kernels

        if kernels.spreads(x, weight, stride):
            return kernels.convolve(x, weight, stride)
    return torch.conv2d(x, weight, None, stride, padding)


class _Convolve(torch.autograd.Function):
    """A convolution whose weight gradient is found beside the backward pass, which does not wait for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Stride, padding: Stride, beside: Beside) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.beside = (stride, padding), beside
        if weight.shape[2:] == (1, 1) and stride != (1, 1) and not _own(x, weight, stride, padding):
            # For this, libraries go a long way round.
            x, stride = x[:, :, :: stride[0], :: stride[1]].contiguous(memory_format=torch.channels_last), (1, 1)
        return convolution(x, weight, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (x, weight), (stride, padding) = gradients, ctx.saved_tensors, ctx.shape
        now, own, dx = moment(g.device), _own(x, weight, stride, padding), None
        if own:
            from scommer import kernels

        def derive(of_x: bool, of_weight: bool) -> tuple[Tensor, Tensor, Tensor]:
            wanted = (of_x, of_weight, False)
            found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
                g, x, weight, None, stride, padding, (1, 1), False, (0, 0), 1, wanted
            )
            return found

        if ctx.needs_input_grad[0]:
            dx = kernels.convolve_back(g, weight, stride) if own and kernels.spreads(x, weight, stride) else None
            dx = derive(True, False)[0] if dx is None else dx
        with ctx.beside.working(x, g, since=now):
            if own and (place := ctx.beside.empty_place(weight)) is not None:
                kernels.kernel_gradient(x, g, place, weight.shape[2], stride)
                return dx, None, None, None, None
            _, dweight, _ = derive(False, True)
            ctx.beside.deliver(weight, dweight)
        return dx, dweight, None, None, None


def convolve(x: Tensor, weight: Tensor, stride: Stride, padding: Stride, beside: Beside) -> Tensor:
    """A convolution; `beside.join` comes before its weight's gradient is read."""
    y: Tensor = _Convolve.apply(x, weight, stride, padding, beside)  # type: ignore[no-untyped-call]
    return y


class _Linear(torch.autograd.Function):
    """A linear layer whose own gradients are found beside the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, beside: Beside) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.beside = beside
        return torch.addmm(bias, x, weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (x, weight, bias) = gradients, ctx.saved_tensors
        now = moment(g.device)
        dx = g @ weight if ctx.needs_input_grad[0] else None
        with ctx.beside.working(x, g, since=now):
            dweight, dbias = g.T @ x, g.sum(0)
            ctx.beside.deliver(weight, dweight)
            ctx.beside.deliver(bias, dbias)
        return dx, dweight, dbias, None


def linear(x: Tensor, weight: Tensor, bias: Tensor, beside: Beside) -> Tensor:
    """A linear layer; `beside.join` comes before the gradients of weight and bias are read."""
    y: Tensor = _Linear.apply(x, weight, bias, beside)  # type: ignore[no-untyped-call]
    return y
