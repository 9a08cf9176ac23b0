"""The settings of training that every method shares."""

from dataclasses import dataclass
from typing import Literal

from scommer.errors import UsageError


@dataclass(frozen=True)
class Training:
    """How a learner trains: network, optimiser, batches, augmentation."""

    network: str = "resnet18"  # resnet18, small or mlp
    width: int | None = None  # units of the first stage; None: the network's own
    depth: int | None = None  # blocks a stage
    stages: int | None = None
    epochs: int = 50  # passes over each task
    lr: float = 0.1  # η
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch: int = 32  # task images a step
    replay: int = 32  # recalled images a step
    drop_last: bool = True  # a last partial batch is left out
    offer: Literal["every_epoch", "first_epoch"] = "every_epoch"  # when the reservoir is offered the task
    pad: int = 4  # pixels of the random crop
    flip: bool = True
    mean: tuple[float, ...] = (0.5,)  # of normalisation, by channel
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "replay", "width", "depth", "stages"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value} is impossible: give a whole number of at least 1")
        if self.lr <= 0:
            raise UsageError(f"lr = {self.lr} teaches nothing: give a number above 0")
        if not 0 <= self.momentum < 1 or self.weight_decay < 0 or self.pad < 0:
            raise UsageError("momentum must be in [0, 1), weight_decay and pad at least 0")
        if any(s <= 0 for s in self.std):
            raise UsageError(f"std = {list(self.std)} cannot be divided by: give numbers above 0")
