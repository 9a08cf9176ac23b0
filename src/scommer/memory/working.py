"""Working memory: the network that learns by gradient descent."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from scommer.gpu.gradient_sink import GradientSink
from scommer.nn.layers import Conv, Linear, Parts
from scommer.nn.networks import Keep, NetworkOutput, units_of
from scommer.nn.weights import Weights, copy_each, views


class WorkingMemory:
    """A network θ_w, with its weights and their gradient as one vector each."""

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
        self.momentum, self.weight_decay = momentum, weight_decay
        self._gradient = torch.zeros_like(self.weights.theta)
        self.velocity = torch.zeros_like(self._gradient) if momentum else None
        self._slots = list(views(self._gradient, self.parameters))  # of each parameter's gradient
        self.sink = GradientSink(self.parameters, self._slots)
        for m in network.modules():
            if isinstance(m, Conv | Linear):
                m.sink = self.sink

    def __call__(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> NetworkOutput:
        output: NetworkOutput = self.network(x, keep, parts)
        return output

    def backward(self, loss: Tensor) -> None:
        """Compute ∇L. On a GPU, a side stream may still be working on part of it."""
        self._backward(loss, self._slots)

    def _backward(self, loss: Tensor, slots: Sequence[Tensor]) -> None:
        self.sink.reset()
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        missing = self.sink.missing()
        found = [g if (g := gradients[i]) is not None else torch.zeros_like(slots[i]) for i in missing]
        copy_each(found, [slots[i] for i in missing])

    @property
    def gradient(self) -> Tensor:
        """∇L as one vector. Change it in place to change what `update` follows."""
        self.sink.side.join()
        return self._gradient

    def gradient_of(self, loss: Tensor) -> Tensor:
        """Return the gradient of another loss as one vector, and leave ∇L unchanged."""
        self.sink.side.join()
        other = torch.empty_like(self._gradient)
        slots = list(views(other, self.parameters))
        with self.sink.redirected(slots):
            self._backward(loss, slots)
        self.sink.side.join()
        return other

    def update(self, lr: float) -> None:
        """θ_w ← θ_w - η ∇L, with momentum and weight decay if they are not 0."""
        first = self.parameters[0]
        if not self.momentum and not self.weight_decay and self.sink.ended_with(first):
            # The first layer's gradient arrives last: update the other weights before it does.
            self.sink.side.join_all_but_last()
            self.weights.descend(self._gradient, lr, slice(first.numel(), None))
            self.sink.side.join()
            self.weights.descend(self._gradient, lr, slice(0, first.numel()))
            return
        direction = self.gradient
        if self.weight_decay:
            direction.add_(self.weights.theta, alpha=self.weight_decay)
        if self.velocity is not None:
            direction = self.velocity.mul_(self.momentum).add_(direction)
        self.weights.descend(direction, lr)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state by name."""
        velocity = {} if self.velocity is None else {"velocity": self.velocity}
        return {"theta": self.weights.theta, "statistics": self.weights.statistics, **velocity}
