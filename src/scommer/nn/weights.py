"""All weights of a network as one vector that its layers view: SGD and Eq. 3 become one line each."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scommer.gpu.switches import has_kernels


class Weights:
    """The parameters of `network` in `theta`, its running statistics in `statistics`.

    The network's parameters and buffers become views of these vectors, so that either side sees what
    the other changes in place. Kernels lie channels-last, as convolutions like them best. With a `half`
    precision, they view a copy of `theta` in it, which follows all that is done here.
    """

    def __init__(self, network: nn.Module, half: torch.dtype | None = None) -> None:
        parameters = list(network.parameters())
        self.theta = gather(p.data for p in parameters)
        self.half = self.theta.to(half) if half else None
        self.statistics = gather(network.buffers())
        kernels = self.theta if self.half is None else self.half
        for p, whole, kernel in zip(parameters, views(self.theta, parameters), views(kernels, parameters), strict=True):
            p.data = kernel if p.dim() == 4 else whole
        for b, view in zip(network.buffers(), views(self.statistics, network.buffers()), strict=True):
            b.data = view

    def sync_half(self) -> None:
        """Update the half-precision copy after `theta` was changed from outside."""
        if self.half is not None:
            self.half.copy_(self.theta)

    def descend(self, gradient: Tensor, lr: float, part: slice = slice(None)) -> None:
        """θ ← θ - η g, or a part of it."""
        if has_kernels(self.theta):
            from scommer.gpu import kernels

            half = None if self.half is None else self.half[part]
            kernels.descend(self.theta[part], half, gradient[part], lr)
        else:
            self.theta[part].add_(gradient[part], alpha=-lr)
            self.sync_half()

    def approach(self, target: Tensor, share: Tensor) -> None:
        """θ ← θ + share · (target - θ)."""
        if has_kernels(self.theta):
            from scommer.gpu import kernels

            kernels.approach(self.theta, self.half, target, share)
        else:
            self.theta.lerp_(target, share)
            self.sync_half()

    def named(self, network: nn.Module) -> dict[str, Tensor]:
        """The network's parameters, in full precision, and its statistics by name."""
        names, parameters = zip(*network.named_parameters(), strict=True)
        return {**dict(zip(names, views(self.theta, parameters), strict=True)), **dict(network.named_buffers())}

    @contextmanager
    def borrowing(self, statistics: Tensor) -> Iterator[None]:
        """Uses other running statistics for a while."""
        own = self.statistics.clone()
        self.statistics.copy_(statistics)
        try:
            yield
        finally:
            self.statistics.copy_(own)


def flat(t: Tensor) -> Tensor:
    """A tensor as a vector, kernels channels-last."""
    return (t.permute(0, 2, 3, 1) if t.dim() == 4 else t).reshape(-1)


def gather(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors laid end to end in one vector."""
    vectors = [flat(t) for t in tensors]
    return torch.cat(vectors) if vectors else torch.zeros(0)


def scatter(tensors: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    """Copies tensors to their places: one kernel for each precision on a GPU."""
    for dtype in {t.dtype for t in tensors}:
        chosen = [(flat(place), flat(t)) for place, t in zip(places, tensors, strict=True) if t.dtype == dtype]
        torch._foreach_copy_([place for place, _ in chosen], [t for _, t in chosen])


def views(vector: Tensor, like: Iterable[Tensor]) -> Iterator[Tensor]:
    """`vector` cut into the shapes of `like`, without copying: the inverse of `gather`."""
    start = 0
    for t in like:
        part = vector[start : start + t.numel()]
        start += t.numel()
        if t.dim() == 4:
            o, i, h, w = t.shape
            yield part.view(o, h, w, i).permute(0, 3, 1, 2)
        else:
            yield part.view(t.shape)
