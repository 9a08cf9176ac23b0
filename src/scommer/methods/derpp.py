"""DER++, dark experience replay (Buzzega et al., 2020): replay that also keeps old logits."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scommer.errors import within
from scommer.gpu.compiling import compiled
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome


@dataclass(frozen=True)
class DERpp(Method):
    """CE(task) + α MSE(logits, stored logits) on one draw + β CE on a second, independent draw."""

    alpha: float = 0.1  # α, weight of stored logits
    beta: float = 0.5  # β, weight of stored labels

    label: ClassVar[str] = "DER++"
    colour: ClassVar[str] = "#009E73"
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        within(self, 0, inf, "alpha", "beta")

    def memories(self, factory: MemoryFactory) -> Memories:
        return Memories(factory.working(), factory.episodic(logits=torch.zeros(factory.classes)))

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        batches = (task, *recalled)
        sizes = tuple(len(b.y) for b in batches)
        z, fired = memories.working(torch.cat([b.x for b in batches]), parts=sizes)  # as separate passes
        targets = [task.y, recalled[0].extra["logits"], recalled[1].y] if recalled else [task.y]
        loss = _objective(z, targets, self.alpha, self.beta)
        return Outcome(loss, z[: sizes[0]], [f[: sizes[0]] for f in fired])

    def extra_fields(self, outcome: Outcome) -> Mapping[str, Tensor]:
        return {"logits": outcome.logits.detach()}


@compiled
def _objective(z: Tensor, targets: list[Tensor], alpha: float, beta: float) -> Tensor:
    z_t, *z_m = z.split([len(t) for t in targets])
    y, *recalled = targets
    loss = cross_entropy(z_t, y)
    if recalled:
        logits, labels = recalled
        loss = loss + alpha * mse_loss(z_m[0], logits) + beta * cross_entropy(z_m[1], labels)
    return loss
