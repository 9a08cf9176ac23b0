"""A plugin that helps to choose h and f: further averages of working memory, evaluated beside long-term memory.

`scommer run s-cifar10 --variant plus --validation 0.1 --set horizons=[0.3,1.0] --plugin docs/plus/averages.py`
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from scommer.methods import METHODS, Batch, Memories, MemoryFactory, Outcome, View
from scommer.methods.scommer import SCoMMER, _decay


@dataclass(frozen=True)
class WithAverages(SCoMMER):
    """SCoMMER, unchanged but for what is averaged and evaluated besides: no other memory learns from these averages."""

    horizons: tuple[float, ...] = ()  # fractions of a task to average over
    recents: tuple[float, ...] = ()  # fractions of all steps so far to average over

    @property
    def averages(self) -> dict[str, tuple[float, float]]:
        """Return h and f of each average."""
        by_task = {f"average{h:g}": (h, 0.0) for h in self.horizons}
        return by_task | {f"recent{f:g}": (math.inf, f) for f in self.recents}

    def memories(self, factory: MemoryFactory) -> Memories:
        made = super().memories(factory)
        for name in self.averages:
            made.long_term[name] = factory.long_term(made.working, "coin")
        return made

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        super().after_step(memories, task, outcome)
        for name, (h, f) in self.averages.items():
            memory = memories.long_term[name]
            alpha = _decay(memory.step, memories.task_steps, self.r, h, f)
            memory.consolidate(memories.working, self.r, alpha, self.ramp)

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        return super().views(memories, calibration) + [
            View(name, memory, memory.statistics("recalibrated", memories.working, calibration))
            for name, memory in memories.long_term.items()
            if name in self.averages
        ]


METHODS["scommer"] = WithAverages
