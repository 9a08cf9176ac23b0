"""DER++, dark experience replay (Buzzega et al., 2020): replay that also holds on to old logits."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scommer.errors import within
from scommer.methods.base import Batch, Method, Mind, Outcome, Workshop


@dataclass(frozen=True)
class DERpp(Method):
    """CE(task) + α MSE(logits, stored logits) on one draw + β CE on a second, independent draw."""

    alpha: float = 0.1  # α, weight of the stored logits
    beta: float = 0.5  # β, weight of the labels

    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        within(self, 0, inf, "alpha", "beta")

    def mind(self, make: Workshop) -> Mind:
        return Mind(make.working(), make.episodic(logits=torch.zeros(make.classes)))

    def loss(self, mind: Mind, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        batches = (task, *recalled)
        sizes = tuple(len(b.y) for b in batches)
        z, fired = mind.working(torch.cat([b.x for b in batches]), parts=sizes)  # as separate passes
        z_t, *z_m = z.split(sizes)
        loss = cross_entropy(z_t, task.y)
        if recalled:
            dark, labelled = recalled
            loss = loss + self.alpha * mse_loss(z_m[0], dark.kept["logits"])
            loss = loss + self.beta * cross_entropy(z_m[1], labelled.y)
        return Outcome(loss, z_t, [f[: sizes[0]] for f in fired])

    def keepsake(self, outcome: Outcome) -> Mapping[str, Tensor]:
        return {"logits": outcome.logits.detach()}
