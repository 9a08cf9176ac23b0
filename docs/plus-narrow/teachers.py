"""A plugin with which long-term memory can teach with the mean of its answers to an image and its mirror image.

`scommer run s-cifar10 --variant plus --set taught_by=both --plugin docs/plus-narrow/teachers.py`
The runs here also have the plugin `bf16_on_cpu.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from scommer.methods import METHODS, Batch, Memories
from scommer.methods.scommer import SCoMMER


@dataclass(frozen=True)
class Taught(SCoMMER):
    """SCoMMER whose long-term memory may answer mirror images too."""

    taught_by: Literal["same", "both"] = "same"

    def _retrieve(self, memories: Memories, both: Batch, parts: Sequence[Batch]) -> tuple[Tensor | None, Tensor | None]:
        plain = super()._retrieve(memories, both, parts)
        if self.taught_by == "same":
            return plain
        first, *rest = (b._replace(x=b.x.flip(3)) for b in (both, *parts))
        mirrored = super()._retrieve(memories, first, rest)
        return _mean(plain[0], mirrored[0]), _mean(plain[1], mirrored[1])


def _mean(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else (a + b) / 2


METHODS["scommer"] = Taught
