"""A stream: tasks that come one after the other, as indices into a data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from operator import index
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from scommer.data import Dataset, from_arrays
from scommer.errors import UsageError, unknown

Kind = Literal["class-il", "gcil"]


@dataclass(frozen=True)
class Task:
    """Which training images a task brings, which test images score it, and which classes it is about."""

    train: Tensor  # int64, into the training images
    test: Tensor  # int64, into the test images
    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            indices = np.asarray(getattr(self, name))
            if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):  # an empty list has no kind
                raise UsageError(f"{name} of a task are the numbers of its images: give a list of whole numbers")
            object.__setattr__(self, name, torch.from_numpy(indices.astype(np.int64)))
        try:
            object.__setattr__(self, "classes", tuple(index(c) for c in self.classes))
        except TypeError:
            raise UsageError("the classes of a task are their numbers: give a tuple of whole numbers") from None
        if not self.classes:
            raise UsageError("a task has no classes: name those of its images")


@dataclass(frozen=True)
class Stream:
    """Tasks over one data set.

    In a `class-il` stream each task has classes of its own and is scored on their test images. In a
    `gcil` stream classes come back, and task t is scored on the test images of all classes seen by then.
    """

    name: str
    kind: Kind
    data: Dataset
    tasks: tuple[Task, ...]
    validation: float = 0.0  # share of the training images that takes the place of the test images

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise unknown("kind of stream", self.kind, get_args(Kind))
        if not isinstance(self.data, Dataset):
            raise UsageError(f"the data of a stream is a {type(self.data).__name__}: make a Dataset with from_arrays")
        if not isinstance(self.tasks, tuple) or not all(isinstance(task, Task) for task in self.tasks):
            raise UsageError("the tasks of a stream are a tuple of Task")
        if not self.tasks:
            raise UsageError(f"{self.name} has no tasks: give at least one")
        for i, task in enumerate(self.tasks, 1):
            if not len(task.train):
                raise UsageError(f"task {i} of {self.name} has no training images: give some, or leave it out")
            for what, numbers, end in (
                ("training images", task.train, len(self.data.train_images)),
                ("test images", task.test, len(self.data.test_images)),
                ("classes", torch.tensor(task.classes), self.data.num_classes),
            ):
                if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < end:
                    raise UsageError(
                        f"task {i} of {self.name} has {what} from {int(numbers.min())} to {int(numbers.max())}: "
                        f"there are those from 0 to {end - 1}"
                    )
            for indices, labels in ((task.train, self.data.train_labels), (task.test, self.data.test_labels)):
                if self.kind != "class-il":  # in GCIL a test set has earlier classes too
                    continue
                if strange := set(labels[indices].unique().tolist()) - set(task.classes):
                    raise UsageError(
                        f"task {i} of {self.name} has images of class {min(strange)}, which is none of its classes"
                    )

    def check_scored(self) -> None:
        """Refuses a task that cannot be scored."""
        for i, task in enumerate(self.tasks, 1):
            if not len(task.test):
                raise UsageError(f"task {i} of {self.name} has no test images to be scored on: give some")

    def __repr__(self) -> str:
        images = sum(len(task.train) for task in self.tasks)
        return f"Stream({self.name!r}, {self.kind}, {len(self.tasks)} tasks, {images} images of {self.data.name!r})"

    @property
    def scored_in(self) -> tuple[str, ...]:
        """What it is scored in: Class-IL, and Task-IL where every class belongs to one task."""
        return ("class_il", "task_il") if self.kind == "class-il" else ("class_il",)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies what is learned and scored, in which order: equal for every method and seed."""
        h = sha256(f"{self.kind}/{self.data.num_classes}".encode())
        for images in (self.data.train_images, self.data.test_images):
            h.update(f"{images.dtype}/{tuple(images.shape)}".encode())
            h.update(images.contiguous().numpy().data)
        for task in self.tasks:
            for indices, labels in (
                (task.train, self.data.train_labels),
                (task.test, self.data.test_labels),
                (torch.tensor(task.classes), None),
            ):
                h.update(f"/{len(indices)}:".encode())
                h.update(indices.numpy().astype("<i8").tobytes())
                if labels is not None:
                    h.update(labels[indices].numpy().astype("<i8").tobytes())
        return h.hexdigest()[:16]

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Training and test images and labels on a device: one copy for all who learn this stream."""
        if device not in self._placed:
            d = self.data
            self._placed[device] = (
                d.train_images.to(device), d.train_labels.to(device),
                d.test_images.to(device), d.test_labels.to(device),
            )  # fmt: skip
        return self._placed[device]

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor, Tensor, Tensor]]:
        return {}

    def phases(self, joint: bool = False) -> list[Tensor]:
        """The training indices of each task; of all tasks at once when `joint`."""
        train = [task.train for task in self.tasks]
        return [torch.cat(train)] if joint else train


Source = Dataset | tuple[Any, Any] | tuple[Any, Any, Any, Any]


def as_dataset(source: Source, validation: float = 0.0) -> Dataset:
    """A data set from (images, labels) or (images, labels, test images, test labels), or as it is.

    With `validation`, that share of the training images takes the place of the test images, so that
    hyperparameters can be chosen without a look at the test set.
    """
    if not isinstance(source, Dataset) and not (isinstance(source, tuple) and len(source) in (2, 4)):
        raise UsageError(
            f"a stream is made of a Dataset, (images, labels) or (images, labels, test images, test labels), "
            f"not of a {type(source).__name__}"
        )
    data = source if isinstance(source, Dataset) else from_arrays(*source)
    if not 0 <= validation < 1:
        raise UsageError(f"validation = {validation} is impossible: give the share to hold out, from 0 to below 1")
    if not validation:
        return data
    return from_arrays(
        data.train_images, data.train_labels,
        class_names=data.class_names, name=data.name, layout="NCHW", test_fraction=validation,
    )  # fmt: skip


Order = Sequence[int] | Literal["given", "shuffled"]


def class_order(order: Order, classes: int, seed: int) -> np.ndarray:
    """In which order classes come: by label, as listed, or shuffled by `seed`."""
    if isinstance(order, str):
        if order not in ("given", "shuffled"):
            raise unknown("class order", order, ("given", "shuffled"))
        return np.arange(classes) if order == "given" else np.random.default_rng(seed).permutation(classes)
    try:
        listed = np.array([index(c) for c in order])
    except TypeError:
        listed = np.array([])
    if sorted(listed) != list(range(classes)):
        raise UsageError(f"the class order must name each of the classes 0 … {classes - 1} once; it is {order}")
    return listed


def of_classes(labels: Tensor, classes: Sequence[int]) -> Tensor:
    """Indices of the images of these classes, in the order of the data set."""
    return torch.isin(labels, torch.tensor(classes)).nonzero().flatten()
