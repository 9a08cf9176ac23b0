"""ER-ACE (Caccia et al., 2022): replay with an asymmetric cross-entropy."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from scommer.gpu.compiling import compiled
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome


@dataclass(frozen=True)
class ERACE(Method):
    """CE(task) without the earlier classes that are absent from its batch + CE(recalled) over all classes.

    New classes then do not push down the logits of old ones; only recalled images set the two against each other.
    """

    label: ClassVar[str] = "ER-ACE"
    colour: ClassVar[str] = "#56B4E9"
    draws: ClassVar[int] = 1

    def memories(self, factory: MemoryFactory) -> Memories:
        seen = factory.zeros(factory.classes, dtype=torch.bool)
        return Memories(factory.working(), factory.episodic(), state={"seen": seen})

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        batches = (task, *recalled)
        sizes = tuple(len(b.y) for b in batches)
        z, fired = memories.working(torch.cat([b.x for b in batches]), parts=sizes)  # as separate passes
        loss = _asymmetric(z, [b.y for b in batches], memories.state["seen"])
        return Outcome(loss, z[: sizes[0]], [f[: sizes[0]] for f in fired])

    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        memories.state["seen"].index_fill_(0, task.y, True)


@compiled
def _asymmetric(z: Tensor, labels: list[Tensor], seen: Tensor) -> Tensor:
    z_t, *z_m = z.split([len(y) for y in labels])
    y, *recalled = labels
    present = torch.zeros_like(seen).index_fill(0, y, True)
    loss = cross_entropy(z_t.masked_fill(seen & ~present, -torch.inf), y)
    return loss + cross_entropy(z_m[0], recalled[0]) if recalled else loss
