"""LwF, learning without forgetting (Li and Hoiem, 2016): the network before a task teaches it during the task."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from scommer.errors import within
from scommer.gpu.compiling import compiled
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome, TaskImages


@dataclass(frozen=True)
class LwF(Method):
    """CE(task) + α CE(softmax(z / T), softmax(z* / T)) over earlier tasks' classes, on the task's own images.

    z* are the logits of the network as it was when the last task ended.
    """

    alpha: float = 0.5  # α, weight of distillation
    temperature: float = 2.0  # T, temperature of the softmax in distillation

    label: ClassVar[str] = "LwF"
    colour: ClassVar[str] = "#7570B3"

    def __post_init__(self) -> None:
        within(self, 0, inf, "alpha")
        within(self, 1e-3, inf, "temperature")

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        old = factory.zeros(factory.classes, dtype=torch.bool)
        return Memories(working, long_term={"teacher": factory.long_term(working, "teacher")}, state={"old": old})

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        z, fired = memories.working(task.x)
        taught = memories.long_term["teacher"].respond(task.x)
        loss = _distil(z, task.y, taught, memories.state["old"], self.alpha, self.temperature)
        return Outcome(loss, z, fired)

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        memories.long_term["teacher"].copy_from(memories.working)
        memories.state["old"].index_fill_(0, images.labels[images.index.to(images.labels.device)], True)


@compiled
def _distil(z: Tensor, y: Tensor, taught: Tensor, old: Tensor, alpha: float, temperature: float) -> Tensor:
    target = _restricted(taught / temperature, old).softmax(1)
    distance = -(target * _restricted(z / temperature, old).log_softmax(1)).sum(1).mean()
    return cross_entropy(z, y) + alpha * old.any() * distance  # in the first task there is no teacher


def _restricted(z: Tensor, classes: Tensor) -> Tensor:
    """Return the logits with no probability left for other classes; finite, even if `classes` is empty."""
    return z.masked_fill(~classes, -1e9)
