"""SGD: the lower bound. No replay, no memory besides the weights."""

from dataclasses import dataclass
from typing import ClassVar

from torch.nn.functional import cross_entropy

from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome


@dataclass(frozen=True)
class SGD(Method):
    """Plain training on one task after another."""

    label: ClassVar[str] = "SGD"
    colour: ClassVar[str] = "#999999"

    def memories(self, factory: MemoryFactory) -> Memories:
        return Memories(factory.working())

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        z, fired = memories.working(task.x)
        return Outcome(cross_entropy(z, task.y), z, fired)
