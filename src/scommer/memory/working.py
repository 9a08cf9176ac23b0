"""Working memory: the network that learns by gradient descent."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from scommer.beside import Beside
from scommer.layers import Conv, Linear, Parts
from scommer.networks import Keep, Response, units_of
from scommer.weights import Weights, scatter, views


class WorkingMemory:
    """A network θ_w, its weights and their gradient as one vector each."""

    def __init__(
        self,
        network: nn.Module,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        half: torch.dtype | None = None,
    ) -> None:
        self.network, self.units = network.train(), units_of(network)
        self.weights = Weights(network, half)
        self.parameters = list(network.parameters())
        self.grad = torch.zeros_like(self.weights.theta)
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity = torch.zeros_like(self.grad) if momentum else None
        self.places = list(views(self.grad, self.parameters))
        self.beside = Beside(self.grad.device)  # of the backward pass
        self.beside.places = {p.data_ptr(): place for p, place in zip(self.parameters, self.places, strict=True)}
        for m in network.modules():
            if isinstance(m, Conv | Linear):
                m.beside = self.beside

    def __call__(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> Response:
        response: Response = self.network(x, keep, parts)
        return response

    def descend(self, loss: Tensor, lr: float) -> None:
        """θ_w ← θ_w - η ∇L, with momentum and weight decay where asked for."""
        self.beside.delivered.clear()
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        delivered = self.beside.delivered
        here = [i for i, p in enumerate(self.parameters) if p.data_ptr() not in delivered]
        found = [gradients[i] if gradients[i] is not None else torch.zeros_like(self.places[i]) for i in here]
        scatter(found, [self.places[i] for i in here])
        first = self.parameters[0]
        if not self.momentum and not self.weight_decay and delivered[-1:] == [first.data_ptr()]:
            # The first layer's gradient comes last: the others need not wait for it.
            self.beside.join(but_last=True)
            self.weights.descend(self.grad, lr, slice(first.numel(), None))
            self.beside.join()
            self.weights.descend(self.grad, lr, slice(0, first.numel()))
            return
        self.beside.join()
        direction = self.grad
        if self.weight_decay:
            direction.add_(self.weights.theta, alpha=self.weight_decay)
        if self.velocity is not None:
            direction = self.velocity.mul_(self.momentum).add_(direction)
        self.weights.descend(direction, lr)

    def tensors(self) -> Mapping[str, Tensor]:
        """The live state, by name."""
        velocity = {} if self.velocity is None else {"velocity": self.velocity}
        return {"theta": self.weights.theta, "statistics": self.weights.statistics, **velocity}
