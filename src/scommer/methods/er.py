"""ER, experience replay (Riemer et al., 2018): task and recalled images in one batch."""

from dataclasses import dataclass
from typing import ClassVar

from torch.nn.functional import cross_entropy

from scommer.methods.base import Batch, Method, Mind, Outcome, Workshop, interleave


@dataclass(frozen=True)
class ER(Method):
    """One forward pass over the concatenated images, mean cross-entropy."""

    draws: ClassVar[int] = 1

    def mind(self, make: Workshop) -> Mind:
        return Mind(make.working(), make.episodic())

    def loss(self, mind: Mind, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        x, y = interleave(task, *recalled)
        z, fired = mind.working(x)
        n = len(task.y)
        return Outcome(cross_entropy(z, y), z[:n], [f[:n] for f in fired])
