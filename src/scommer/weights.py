"""All weights of a network as one vector that its layers view: SGD and Eq. 3 become one line each."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Weights:
    """The parameters of `network` in `theta`, its running statistics in `statistics`.

    The network's parameters and buffers become views of these vectors, so that either side sees what
    the other changes in place. Kernels lie channels-last, as convolutions like them best.
    """

    def __init__(self, network: nn.Module) -> None:
        self.theta = gather(p.data for p in network.parameters())
        self.statistics = gather(network.buffers())
        for p, view in zip(network.parameters(), views(self.theta, network.parameters()), strict=True):
            p.data = view
        for b, view in zip(network.buffers(), views(self.statistics, network.buffers()), strict=True):
            b.data = view

    @contextmanager
    def borrowing(self, statistics: Tensor) -> Iterator[None]:
        """Uses other running statistics for a while."""
        own = self.statistics.clone()
        self.statistics.copy_(statistics)
        try:
            yield
        finally:
            self.statistics.copy_(own)


def gather(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors laid end to end in one vector, kernels channels-last."""
    flat = [(t.permute(0, 2, 3, 1) if t.dim() == 4 else t).flatten() for t in tensors]
    return torch.cat(flat) if flat else torch.zeros(0)


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
