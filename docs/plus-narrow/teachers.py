"""A plugin for narrow networks on a CPU in bf16, with long-term memory that teaches from mirror images.

`scommer run s-cifar10 --variant plus --set width=16 --precision bf16 --plugin docs/plus-narrow/teachers.py`
With `--set taught_by=mirrored` it answers mirror images; with `both`, the mean of that and its answers to the images.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from scommer.methods import METHODS, Batch, Memories
from scommer.methods.scommer import SCoMMER
from scommer.runs import options, runner

for module in (options, runner):
    module.choose_precision = lambda wanted, device: wanted or "bf16"  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Taught(SCoMMER):
    """SCoMMER with another view of the images for long-term memory."""

    taught_by: Literal["same", "mirrored", "both"] = "same"

    def _retrieve(self, memories: Memories, both: Batch, parts: Sequence[Batch]) -> tuple[Tensor | None, Tensor | None]:
        mirrored = [b._replace(x=b.x.flip(3)) for b in (both, *parts)]
        answers = super()._retrieve(memories, mirrored[0], mirrored[1:]) if self.taught_by != "same" else (None, None)
        if self.taught_by == "mirrored":
            return answers
        z_s, taught = super()._retrieve(memories, both, parts)
        if self.taught_by == "same" or z_s is None or taught is None:
            return z_s, taught
        assert answers[0] is not None
        assert answers[1] is not None
        return (z_s + answers[0]) / 2, (taught + answers[1]) / 2


METHODS["scommer"] = Taught
