"""The settings of training that every method shares."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from scommer.errors import within


@dataclass(frozen=True)
class Training:
    """How a learner trains: network, optimiser, batches, augmentation."""

    network: str = "resnet18"  # a name in NETWORKS
    width: int | None = None  # units of the first stage; None: the network's default
    depth: int | None = None  # blocks per stage
    stages: int | None = None
    epochs: int = 50  # passes over each task
    lr: float = 0.1  # η
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch: int = 32  # task images per step
    replay: int = 32  # recalled images per step
    drop_last: bool = True  # leave out a last partial batch
    offer: Literal["every_epoch", "first_epoch"] = "every_epoch"  # when the reservoir is offered the task
    pad: int = 4  # pixels of the random crop
    flip: bool = True
    mean: tuple[float, ...] = (0.5,)  # of normalisation, per channel
    std: tuple[float, ...] = (0.5,)

    def steps(self, images: int) -> int:
        """Return the steps per epoch for this many images; a partial batch is dropped unless it is the only one."""
        return max(1, images // self.batch) if self.drop_last else -(-images // self.batch)

    def __post_init__(self) -> None:
        sizes = [name for name in ("width", "depth", "stages") if getattr(self, name) is not None]
        within(self, 1, inf, "epochs", "batch", "replay", *sizes)
        within(self, 0, 0.9999, "momentum")
        within(self, 0, inf, "weight_decay", "pad")
        within(self, 1e-9, inf, "lr")  # 0 teaches nothing
        within(self, 1e-9, inf, "std")  # images are divided by it
