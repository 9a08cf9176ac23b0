"""The settings of training that every method shares."""

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from scommer.errors import within

STEPS_PER_IMAGE = {False: 3, True: 10}  # at most, of classes that are known, or new: a few images take little time


@dataclass(frozen=True)
class Training:
    """How a learner trains: network, optimiser, batches, augmentation."""

    network: str = "resnet18"  # a name in NETWORKS
    width: int | None = None  # units of the first stage; None: the network's default
    depth: int | None = None  # blocks per stage
    stages: int | None = None
    epochs: int = 50  # passes over each task
    min_steps: int = 0  # a small task gets more passes, up to this many steps and STEPS_PER_IMAGE for each image
    lr: float = 0.1  # η
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch: int = 32  # task images per step
    replay: int = 32  # recalled images per step
    drop_last: bool = True  # leave out a last partial batch
    fill: bool = False  # fill a smaller batch of the task with recalled images
    offer: Literal["every_epoch", "first_epoch", "last_epoch"] = "every_epoch"  # when memory is offered the task
    balanced: bool = False  # episodic memory keeps the same number of images of each class, not of all offered
    pad: int = 4  # pixels of the random crop
    flip: bool = True
    mean: tuple[float, ...] = (0.5,)  # of normalisation, per channel
    std: tuple[float, ...] = (0.5,)

    def steps(self, images: int) -> int:
        """Return the steps per epoch for this many images; a partial batch is dropped unless it is the only one."""
        return max(1, images // self.batch) if self.drop_last else -(-images // self.batch)

    def passes(self, images: int, new: bool = True) -> int:
        """Return the epochs of a task with this many images, with a class that is `new` or without.

        Of a batch that is filled up, its own part counts.
        """
        share = min(1, images / self.batch) if self.fill else 1
        wanted = min(self.min_steps, STEPS_PER_IMAGE[new] * images)
        return max(ceil(share * self.epochs), ceil(wanted / self.steps(images)))

    def offers(self, epoch: int, epochs: int) -> bool:
        """Return whether episodic memory is offered the images of this epoch, counted from 0, of a task's epochs."""
        return self.offer == "every_epoch" or epoch == {"first_epoch": 0, "last_epoch": epochs - 1}[self.offer]

    def __post_init__(self) -> None:
        sizes = [name for name in ("width", "depth", "stages") if getattr(self, name) is not None]
        within(self, 1, inf, "epochs", "batch", "replay", *sizes)
        within(self, 0, 0.9999, "momentum")
        within(self, 0, inf, "weight_decay", "pad", "min_steps")
        within(self, 1e-9, inf, "lr")  # 0 teaches nothing
        within(self, 1e-30, inf, "std")  # images are divided by it
