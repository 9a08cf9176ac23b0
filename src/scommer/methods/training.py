"""The settings of training that every method shares."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from scommer.errors import within

STEPS_PER_IMAGE = {False: 3, True: 10}  # limit for known classes, and for new ones: a few images take little time


@dataclass(frozen=True)
class Training:
    """How a learner trains: network, optimiser, batches, augmentation. `scommer list` shows the comments of fields."""

    network: str = "resnet18"  # architecture: resnet18, small, mlp, linear, or one that you registered
    width: int | None = None  # units of the first stage; none: the network's default
    depth: int | None = None  # blocks in each stage; none: the network's default
    stages: int | None = None  # number of stages; none: the network's default
    epochs: int = 50  # passes over each task
    min_steps: int = 0  # minimum number of steps per task, but at most three per image, or ten if a class is new
    lr: float = 0.1  # η, learning rate of SGD
    momentum: float = 0.0  # momentum of SGD
    weight_decay: float = 0.0  # multiple of each weight added to its gradient (L2 regularisation)
    batch: int = 32  # task images in each step
    replay: int = 32  # recalled images in each step
    drop_last: bool = True  # leave out the last batch of an epoch if it is not full
    fill: bool = False  # fill a batch that is not full with recalled images
    offer: Literal["every_epoch", "first_epoch", "last_epoch"] = "every_epoch"  # when memory is offered the images
    balanced: bool = False  # memory keeps equal numbers of images per class, instead of a sample of all
    pad: int = 4  # largest random shift of an image, in pixels; 0: no random crop
    flip: bool = True  # mirror half of the images, chosen at random
    mirrored: bool = False  # predict with the mean logits of an image and its mirror image
    mean: tuple[float, ...] = (0.5,)  # value subtracted from pixels, per channel
    std: tuple[float, ...] = (0.5,)  # value that pixels are divided by, per channel

    def steps(self, images: int) -> int:
        """Return the steps per epoch for this many images; a partial batch is dropped unless it is the only one."""
        return max(1, images // self.batch) if self.drop_last else -(-images // self.batch)

    def passes(self, images: int, new: bool = True) -> int:
        """Return the epochs of a task with this many images; `new` says whether it has a new class.

        Of a batch that is filled up, only the task's own images count.
        """
        share = min(1, images / self.batch) if self.fill else 1
        wanted = min(self.min_steps, STEPS_PER_IMAGE[new] * images)
        return max(ceil(share * self.epochs), ceil(wanted / self.steps(images)))

    def passes_by_task(
        self, images: Iterable[int], classes: Iterable[Collection[int]], known: Collection[int] = ()
    ) -> list[int]:
        """Return the epochs of tasks with these numbers of images and these classes; those `known` are not new."""
        seen, made = set(known), []
        for n, own in zip(images, classes, strict=False):  # all tasks at once are one
            made.append(self.passes(n, not seen.issuperset(own)))
            seen.update(own)
        return made

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
