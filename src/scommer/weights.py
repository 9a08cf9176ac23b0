"""All weights of a network as one vector that its layers view: SGD and Eq. 3 become one line each."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Weights:
    """The parameters of `network` in `theta`, its running statistics in `statistics`.

    The network's parameters and buffers become views of these vectors, so that either side sees what
    the other changes in place.
    """

    def __init__(self, network: nn.Module) -> None:
        self.theta = _gather([p.data for p in network.parameters()])
        self.statistics = _gather(list(network.buffers()))
        for p, view in zip(network.parameters(), self.views(self.theta, network), strict=True):
            p.data = view
        start = 0
        for b in network.buffers():
            b.data = self.statistics[start : start + b.numel()].view_as(b)
            start += b.numel()

    @staticmethod
    def views(vector: Tensor, network: nn.Module) -> Iterator[Tensor]:
        """`vector` cut into the shapes of the network's parameters, without copying."""
        start = 0
        for p in network.parameters():
            yield vector[start : start + p.numel()].view_as(p)
            start += p.numel()

    @contextmanager
    def borrowing(self, statistics: Tensor) -> Iterator[None]:
        """Uses other running statistics for a while."""
        own = self.statistics.clone()
        self.statistics.copy_(statistics)
        try:
            yield
        finally:
            self.statistics.copy_(own)


def _gather(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors]) if tensors else torch.zeros(0)
