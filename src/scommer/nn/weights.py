"""All weights of a network as one vector, so that SGD and Eq. 3 take one line each."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scommer.gpu.switches import has_kernels


class Weights:
    """The parameters of a network as one vector `theta`, and its running statistics as another, `statistics`.

    The parameters and buffers of the network become views of these vectors. Convolution weights are channels-last, the
    fastest layout. With a dtype `half`, they are views of a copy of `theta` in this dtype, which every update here
    writes too.
    """

    def __init__(self, network: nn.Module, half: torch.dtype | None = None) -> None:
        parameters = list(network.parameters())
        self.theta = to_vector(p.data for p in parameters)
        self.half = self.theta.to(half) if half else None
        self.statistics = to_vector(network.buffers())
        convs = self.theta if self.half is None else self.half
        for p, view, conv in zip(parameters, views(self.theta, parameters), views(convs, parameters), strict=True):
            p.data = conv if p.dim() == 4 else view
        for b, view in zip(network.buffers(), views(self.statistics, network.buffers()), strict=True):
            b.data = view

    def sync_half(self) -> None:
        """Update the half-precision copy after `theta` was changed elsewhere."""
        if self.half is not None:
            self.half.copy_(self.theta)

    def descend(self, gradient: Tensor, lr: float, part: slice = slice(None)) -> None:
        """θ ← θ - η g, for all weights or a part of them."""
        if has_kernels(self.theta):
            from scommer.gpu import kernels

            half = None if self.half is None else self.half[part]
            kernels.descend(self.theta[part], half, gradient[part], lr)
        else:
            self.theta[part].add_(gradient[part], alpha=-lr)
            self.sync_half()

    def lerp(self, target: Tensor, weight: Tensor) -> None:
        """θ ← θ + weight · (target - θ)."""
        if has_kernels(self.theta):
            from scommer.gpu import kernels

            kernels.lerp(self.theta, self.half, target, weight)
        else:
            self.theta.lerp_(target, weight)
            self.sync_half()

    def named(self, network: nn.Module) -> dict[str, Tensor]:
        """Return the network's parameters in full precision and its statistics, by name."""
        names, parameters = zip(*network.named_parameters(), strict=True)
        return {**dict(zip(names, views(self.theta, parameters), strict=True)), **dict(network.named_buffers())}

    @contextmanager
    def using_statistics(self, statistics: Tensor) -> Iterator[None]:
        """Use other running statistics; restore the current ones at the end."""
        own = self.statistics.clone()
        self.statistics.copy_(statistics)
        try:
            yield
        finally:
            self.statistics.copy_(own)


def flatten(t: Tensor) -> Tensor:
    """Return a tensor as a vector, a convolution's weight in channels-last order."""
    return (t.permute(0, 2, 3, 1) if t.dim() == 4 else t).reshape(-1)


def to_vector(tensors: Iterable[Tensor]) -> Tensor:
    """Concatenate tensors into one vector."""
    vectors = [flatten(t) for t in tensors]
    return torch.cat(vectors) if vectors else torch.zeros(0)


def copy_each(tensors: Sequence[Tensor], slots: Sequence[Tensor]) -> None:
    """Copy each tensor into its slot; on a GPU with one kernel for each dtype."""
    for dtype in {t.dtype for t in tensors}:
        pairs = [(flatten(slot), flatten(t)) for slot, t in zip(slots, tensors, strict=True) if t.dtype == dtype]
        torch._foreach_copy_([slot for slot, _ in pairs], [t for _, t in pairs])


def views(vector: Tensor, like: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield views of a vector in the shapes of `like`: the inverse of `to_vector`."""
    start = 0
    for t in like:
        part = vector[start : start + t.numel()]
        start += t.numel()
        if t.dim() == 4:
            o, i, h, w = t.shape
            yield part.view(o, h, w, i).permute(0, 3, 1, 2)
        else:
            yield part.view(t.shape)
