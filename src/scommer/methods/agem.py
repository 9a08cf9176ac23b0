"""A-GEM (Chaudhry et al., 2019): no step may raise the loss on a batch of remembered images."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from scommer.gpu.compiling import compiled
from scommer.methods.base import Batch, Memories, MemoryFactory
from scommer.methods.sgd import SGD


@dataclass(frozen=True)
class AGEM(SGD):
    """SGD along g - (g·m / m·m) m where g·m < 0, with g = ∇CE(task) and m = ∇CE(recalled).

    Episodic memory is a reservoir, as for the other methods here.
    """

    label: ClassVar[str] = "A-GEM"
    colour: ClassVar[str] = "#66A61E"
    draws: ClassVar[int] = 1

    def memories(self, factory: MemoryFactory) -> Memories:
        return Memories(factory.working(), factory.episodic())

    def adjust_gradient(self, memories: Memories, recalled: tuple[Batch, ...], lr: float) -> None:
        working = memories.working
        for memory in recalled:  # none in the very first step
            reference = working.gradient_of(cross_entropy(working(memory.x).logits, memory.y))
            working.gradient.sub_(_conflict(working.gradient, reference))


@compiled
def _conflict(g: Tensor, m: Tensor) -> Tensor:
    """Return the part of g that points against m."""
    dot = g.dot(m)
    return torch.where(dot < 0, dot / m.dot(m), 0.0) * m
