"""Working memory: the network that learns by gradient descent."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from scommer.networks import Keep, Parts, Response, units_of
from scommer.weights import Weights, views


class WorkingMemory:
    """A network θ_w, its weights and their gradient as one vector each."""

    def __init__(self, network: nn.Module, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.network = network.train()
        self.weights = Weights(network)
        self.grad = torch.zeros_like(self.weights.theta)
        for p, view in zip(network.parameters(), views(self.grad, network.parameters()), strict=True):
            p.grad = view  # backward adds into the vector
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity = torch.zeros_like(self.grad) if momentum else None

    def __call__(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> Response:
        response: Response = self.network(x, keep, parts)
        return response

    @property
    def units(self) -> tuple[int, ...]:
        """How many units each stage has."""
        return units_of(self.network)

    def descend(self, loss: Tensor, lr: float) -> None:
        """θ_w ← θ_w - η ∇L, with momentum and weight decay where asked for."""
        self.grad.zero_()
        loss.backward()
        direction = self.grad
        if self.weight_decay:
            direction.add_(self.weights.theta, alpha=self.weight_decay)
        if self.velocity is not None:
            direction = self.velocity.mul_(self.momentum).add_(direction)
        self.weights.theta.add_(direction, alpha=-lr)

    def tensors(self) -> Mapping[str, Tensor]:
        """The live state, by name."""
        velocity = {} if self.velocity is None else {"velocity": self.velocity}
        return {"theta": self.weights.theta, "statistics": self.weights.statistics, **velocity}
