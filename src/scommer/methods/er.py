"""ER, experience replay (Riemer et al., 2018): task and recalled images in one batch."""

from dataclasses import dataclass
from typing import ClassVar

from torch.nn.functional import cross_entropy

from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome, concatenate


@dataclass(frozen=True)
class ER(Method):
    """One forward pass over the concatenated images, mean cross-entropy."""

    label: ClassVar[str] = "ER"
    colour: ClassVar[str] = "#0072B2"
    draws: ClassVar[int] = 1

    def memories(self, factory: MemoryFactory) -> Memories:
        return Memories(factory.working(), factory.episodic())

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        x, y = concatenate(task, *recalled)
        z, fired = memories.working(x)
        n = len(task.y)
        return Outcome(cross_entropy(z, y), z[:n], [f[:n] for f in fired])
