"""NCM: the nearest class mean, from running statistics of features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from scommer.memory import WorkingMemory
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome
from scommer.methods.training import Training

UNSEEN = -1e4  # the bias of a class that has not occurred, below the logits of all others
ROUNDING = 1e-6  # relative deviation up to which a feature is constant
MAX_SPREAD = 1e5  # of logits between class means: beyond it, float32 is too coarse for their differences


@dataclass(frozen=True)
class NCM(Method):
    """Nearest class mean; no gradients, no replay, and independent of the order and scale of the data.

    Features are the inputs of the network's head: for the network `linear`, the pixels or the row itself; for any
    other, the units of its last stage, whose weights never change. After each epoch the head is set to
    z_c = μ_c·x - |μ_c|² / 2, with each feature divided by its standard deviation σ within classes, up to a term that
    all classes share. The loss is the mean squared distance of a feature from the mean of its class so far.
    """

    label: ClassVar[str] = "NCM"
    colour: ClassVar[str] = "#A6761D"
    descends: ClassVar[bool] = False

    def fitted_settings(
        self, training: Training, steps: float, classes: float, image_shape: tuple[int, int, int]
    ) -> dict[str, Any]:
        return {"network": "linear"}

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        head = _head(working)
        nn.init.zeros_(head.weight)
        nn.init.constant_(head.bias, UNSEEN)
        classes, features = head.weight.shape
        shapes: dict[str, tuple[int, ...]] = {
            "count": (classes,), "mean": (classes, features), "scatter": self._scatter_shape(features), "rows": (),
        }  # fmt: skip
        state = {name: factory.zeros(*shape, dtype=torch.float64) for name, shape in shapes.items()}
        return Memories(working, state=state)

    @torch.no_grad()
    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        features, z, fired = _respond(memories.working, task.x)
        loss = (features - memories.state["mean"][task.y]).square().mean()
        return Outcome(loss.float(), z, fired, features)

    @torch.no_grad()
    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        assert outcome.features is not None
        deviations = _update(outcome.features, task.y, memories.state["count"], memories.state["mean"])
        memories.state["scatter"].add_(self._scatter(deviations))
        memories.state["rows"].add_(len(task.y))  # also those of classes that are forgotten later

    @torch.no_grad()
    def after_epoch(self, memories: Memories, epoch: int) -> None:
        count, mean = memories.state["count"], memories.state["mean"]
        seen = (count > 0).double()
        centre = seen @ mean / seen.sum()  # without it, small differences of large logits would decide
        offset = (mean - centre) * seen[:, None]
        weight = self._discriminant(offset, memories.state)
        # The mean of all logits is -spread for any x: the largest is not less, so that no unseen class can win.
        spread = (weight * offset).sum() / (2 * seen.sum())
        scale = (MAX_SPREAD / spread).clamp(max=1)  # changes no decision
        bias = -(weight * (mean + centre)).sum(1) / 2
        head = _head(memories.working)
        head.weight.copy_(scale * weight)
        head.bias.copy_(scale * torch.where(count > 0, bias, -spread) + UNSEEN * (1 - seen))
        memories.sync_half()

    def _scatter_shape(self, features: int) -> tuple[int, ...]:
        return (features,)

    def _scatter(self, deviations: Tensor) -> Tensor:
        """Return the sums of squares, of which σ² is made."""
        return deviations.square().sum(0)

    def _discriminant(self, offset: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return Σ⁻¹ (μ_c - μ) for each class c, with Σ = diag(σ²)."""
        variance = state["scatter"] / state["rows"]
        return offset / torch.where(varies(variance, state["mean"]), variance, 1.0)


def _head(working: WorkingMemory) -> nn.Linear:
    head = working.network.head
    assert isinstance(head, nn.Linear)
    return head


def _respond(working: WorkingMemory, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the features in double precision, the logits, and which units fired, all as in a test."""
    received: list[Tensor] = []
    hook = _head(working).register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
    working.network.eval()  # features must not depend on the batch
    z, fired = working(x)
    working.network.train()
    hook.remove()
    return received[0].double(), z, fired


def _update(x: Tensor, y: Tensor, count: Tensor, mean: Tensor) -> Tensor:
    """Update count and mean of each class in place.

    Return vectors whose outer products add up to what the scatter within classes grows by: rows from the mean of their
    class in the batch, and these means from the earlier ones.
    """
    member = (y[:, None] == torch.arange(len(count), device=y.device)).double()  # products repeat, index_add does not
    n = member.sum(0)
    total = (count + n).clamp(min=1)
    batch_mean = member.T @ x / n.clamp(min=1)[:, None]
    shift = batch_mean - mean
    deviations = torch.cat([x - batch_mean[y], shift * (count * n / total).sqrt()[:, None]])
    mean.add_(shift * (n / total)[:, None])
    count.add_(n)
    return deviations


def varies(variance: Tensor, mean: Tensor) -> Tensor:
    """Return which features vary within classes by more than rounding."""
    return variance > (ROUNDING * mean).square().amax(0)
