"""JOINT: the upper bound. A fresh network on all tasks' data, shuffled together."""

from dataclasses import dataclass
from typing import ClassVar

from scommer.methods.sgd import SGD


@dataclass(frozen=True)
class Joint(SGD):
    """SGD on the union of the tasks."""

    label: ClassVar[str] = "JOINT"
    colour: ClassVar[str] = "#000000"
    joint: ClassVar[bool] = True
