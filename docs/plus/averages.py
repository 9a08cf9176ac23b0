"""A plugin that chose the horizon: SCoMMER with further averages of working memory, evaluated beside long-term memory.

`scommer run s-cifar10 --variant plus --validation 0.1 --set horizons=[0.3,1.0] --plugin docs/plus/averages.py`
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from scommer.methods import METHODS, Batch, Memories, MemoryFactory, Outcome, View
from scommer.methods.scommer import SCoMMER


@dataclass(frozen=True)
class WithAverages(SCoMMER):
    """SCoMMER, unchanged but for what is averaged and evaluated besides: no other memory learns from these averages."""

    horizons: tuple[float, ...] = (0.3, 1.0)  # fractions of a task to average over

    def memories(self, factory: MemoryFactory) -> Memories:
        made = super().memories(factory)
        for h in self.horizons:
            made.long_term[f"average{h:g}"] = factory.long_term(made.working, "coin")
        return made

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        super().after_step(memories, task, outcome)
        for h in self.horizons:
            alpha = (1 - 1 / (self.r * h * memories.task_steps)).clamp(min=0)
            memories.long_term[f"average{h:g}"].consolidate(memories.working, self.r, alpha, self.ramp)

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        averages = [(name, memory) for name, memory in memories.long_term.items() if name.startswith("average")]
        return super().views(memories, calibration) + [
            View(name, memory, memory.statistics("recalibrated", memories.working, calibration))
            for name, memory in averages
        ]


METHODS["scommer"] = WithAverages
