"""CLS-ER (Arani et al., 2022): a fast and a slow average of the weights teach working memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scommer.errors import within
from scommer.gpu.compiling import compiled
from scommer.memory import LongTermMemory, WorkingMemory
from scommer.memory.long_term import decay_warnings, fitted_decay
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome, View, concatenate
from scommer.methods.training import Training


@dataclass(frozen=True)
class CLSER(Method):
    """CE over both batches + reg · MSE against the logits of the memory that gives the true class more probability.

    As published, the logits that are compared come from a pass of the recalled images alone, for all three memories.
    """

    reg: float = 0.15  # λ, weight of consistency with the memory that knows an image better
    r_plastic: float = 0.3  # r_P, probability of updating the plastic memory in a step
    r_stable: float = 0.1  # r_S, probability of updating the stable memory in a step
    alpha: float = 0.999  # α, decay of both memories
    ramp: bool = True  # let the decay grow from 0.5 to α over the first steps

    label: ClassVar[str] = "CLS-ER"
    colour: ClassVar[str] = "#CC79A7"
    draws: ClassVar[int] = 1
    passes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        within(self, 0, inf, "reg")
        within(self, 0, 1, "r_plastic", "r_stable", "alpha")

    @property
    def inference(self) -> str:
        return "stable"

    def fitted_settings(
        self, training: Training, steps: float, classes: float, image_shape: tuple[int, int, int]
    ) -> dict[str, Any]:
        return {"alpha": fitted_decay(steps)}

    def plan_warnings(self, training: Training, steps: float) -> list[str]:
        return decay_warnings(self.r_stable, self.alpha, steps)

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        slow = {name: factory.long_term(working, name) for name in ("plastic", "stable")}
        return Memories(working, factory.episodic(), slow)

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        x, y = concatenate(*recalled, task, *recalled)  # a pass of the recalled alone, then one of all
        n, m = sum(len(b.y) for b in recalled), len(task.y)
        z, fired = memories.working(x, parts=(n, m + n) if n else None)
        slow = [memories.long_term[name].retrieve(b.x, b.ready) for b in recalled for name in ("plastic", "stable")]
        return Outcome(_consistent(z, y, slow, n, self.reg), z[n : n + m], [f[n : n + m] for f in fired])

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        for name, r in (("plastic", self.r_plastic), ("stable", self.r_stable)):
            memories.long_term[name].consolidate(memories.working, r, self.alpha, self.ramp)

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        networks: dict[str, WorkingMemory | LongTermMemory] = {"working": memories.working, **memories.long_term}
        views = [View(name, memory, memory.weights.statistics) for name, memory in networks.items()]
        # The memory used for inference is also evaluated with working memory's batch-norm statistics.
        return [*views, View("stable/working", memories.long_term["stable"], memories.working.weights.statistics)]


@compiled
def _consistent(z: Tensor, y: Tensor, slow: list[Tensor], n: int, reg: float) -> Tensor:
    loss = cross_entropy(z[n:], y[n:])
    if slow:
        plastic, stable = slow
        p, s = (z_m.softmax(1).gather(1, y[:n, None]) for z_m in slow)  # [B, 1], of the true class
        loss = loss + reg * mse_loss(z[:n], torch.where(p >= s, plastic, stable))
    return loss
