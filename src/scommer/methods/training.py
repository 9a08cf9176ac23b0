"""The settings of training that every method shares."""

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from scommer.errors import within

STEPS_PER_IMAGE = {False: 3, True: 10}  # at most, of classes that are known, or new: a few images take little time


@dataclass(frozen=True)
class Training:
    """How a learner trains: network, optimiser, batches, augmentation. `scommer list` shows the comments of fields."""

    network: str = "resnet18"  # architecture: resnet18, small, mlp, linear, or one that you registered
    width: int | None = None  # units of the first stage; none: the network's default
    depth: int | None = None  # blocks in each stage; none: the network's default
    stages: int | None = None  # number of stages; none: the network's default
    epochs: int = 50  # passes over each task
    min_steps: int = 0  # least number of steps in a task, but no more than three for each of its images
    lr: float = 0.1  # η, learning rate of SGD
    momentum: float = 0.0  # momentum of SGD
    weight_decay: float = 0.0  # multiple of each weight that is added to its gradient (L2 regularisation)
    batch: int = 32  # task images in each step
    replay: int = 32  # recalled images in each step
    drop_last: bool = True  # leave out the last batch of an epoch if it is not full
    fill: bool = False  # fill a batch that is not full with recalled images
    offer: Literal["every_epoch", "first_epoch", "last_epoch"] = "every_epoch"  # when memory is offered the images
    balanced: bool = False  # memory keeps equally many images of each class, instead of a sample of all
    pad: int = 4  # pixels by which an image is shifted at random, at most; 0: no random crop
    flip: bool = True  # mirror half of the images, chosen at random
    mean: tuple[float, ...] = (0.5,)  # value that is subtracted from pixels, for each channel
    std: tuple[float, ...] = (0.5,)  # value that pixels are divided by, for each channel

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
