"""Online EWC (Schwarz et al., 2018): weights that mattered for earlier tasks are held where they were."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from scommer.errors import within
from scommer.gpu.compiling import compiled
from scommer.memory import WorkingMemory
from scommer.methods.base import Batch, Memories, MemoryFactory, TaskImages
from scommer.methods.sgd import SGD

BATCH = 32  # images per backward pass


@dataclass(frozen=True)
class EWC(SGD):
    """CE(task) + λ Σ_i F_i (θ_i - θ*_i)²; when a task ends, F ← γ F + F_task and θ* ← θ.

    The penalty's gradient is taken at the end of the step, not at its start, which is stable for any size of λ F.
    """

    penalty: float = 10.0  # λ, strength of the pull on important weights
    gamma: float = 1.0  # γ, weight of earlier tasks' Fisher information

    label: ClassVar[str] = "oEWC"
    colour: ClassVar[str] = "#8C510A"

    def __post_init__(self) -> None:
        within(self, 0, inf, "penalty")
        within(self, 0, 1, "gamma")

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        theta = working.weights.theta
        return Memories(working, state={"fisher": torch.zeros_like(theta), "anchor": theta.clone()})

    def adjust_gradient(self, memories: Memories, recalled: tuple[Batch, ...], lr: float) -> None:
        g, theta = memories.working.gradient, memories.working.weights.theta
        g.copy_(_penalised(g, theta, memories.state["anchor"], memories.state["fisher"], self.penalty, lr))

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        found = fisher(memories.working, images)  # before anything changes, because it may be abandoned
        memories.state["fisher"].mul_(self.gamma).add_(found)
        memories.state["anchor"].copy_(memories.working.weights.theta)


@compiled
def _penalised(g: Tensor, theta: Tensor, anchor: Tensor, fisher: Tensor, penalty: float, lr: float) -> Tensor:
    """Return the gradient whose step is θ ← (θ - η g + 2 η λ F θ*) / (1 + 2 η λ F)."""
    weight = 2 * penalty * fisher
    return (g + weight * (theta - anchor)) / (1 + lr * weight)


def fisher(working: WorkingMemory, images: TaskImages, batch: int = BATCH) -> Tensor:
    """Return an unbiased estimate of the diagonal of the empirical Fisher information, E[(∂ log p(y|x) / ∂θ)²].

    A batch needs one backward pass: with random signs s, E[(Σ_i s_i g_i)²] = Σ_i g_i².
    """
    total = torch.zeros_like(working.weights.theta)
    working.network.eval()  # with batch statistics, the gradients of images would depend on each other
    try:
        for x, y, *_ in images.batches(batch):
            images.check()
            sign = 2.0 * torch.randint(2, y.shape, generator=images.generator) - 1
            log_p = -cross_entropy(working(x).logits, y, reduction="none")
            total.add_(working.gradient_of((sign.to(log_p) * log_p).sum()).square_())
    finally:
        working.network.train()
    return total / len(images.index)
