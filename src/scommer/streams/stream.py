"""A stream: a sequence of tasks, each given by indices into a data set."""

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
from scommer.errors import UsageError, check_name

Kind = Literal["class-il", "gcil"]


@dataclass(frozen=True, eq=False)  # comparing tensors does not give one truth value
class Task:
    """The training images, test images and classes of a task."""

    train: Tensor  # int64 indices of training images
    test: Tensor  # int64 indices of test images
    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            indices = np.asarray(getattr(self, name))
            integers = indices.dtype.kind in "iu" or not indices.size  # an empty list becomes floats
            if indices.ndim != 1 or not integers:
                raise UsageError(f"{name} of a task must be the indices of its images: give a list of integers")
            object.__setattr__(self, name, torch.from_numpy(indices.astype(np.int64)))
        try:
            object.__setattr__(self, "classes", tuple(index(c) for c in self.classes))
        except TypeError:
            raise UsageError("the classes of a task must be class numbers: give a tuple of integers") from None
        if not self.classes:
            raise UsageError("a task has no classes: give those of its images")


@dataclass(frozen=True, eq=False)
class Stream:
    """Tasks over one data set.

    In a `class-il` stream each task has its own classes, and its test images are of these. In a `gcil` stream classes
    recur, and the test images of a task are of all classes seen so far.
    """

    name: str
    kind: Kind
    data: Dataset
    tasks: tuple[Task, ...]
    validation: float = 0.0  # share of the training images that replaces the test images

    def __post_init__(self) -> None:
        check_name("kind of stream", self.kind, get_args(Kind))
        if not isinstance(self.data, Dataset):
            raise UsageError(
                f"the data of a stream is a {type(self.data).__name__}: give a Dataset, for example made by from_arrays"
            )
        if not isinstance(self.tasks, tuple) or not all(isinstance(task, Task) for task in self.tasks):
            raise UsageError("the tasks of a stream must be a tuple of Task objects: give tasks=(Task(…), …)")
        if not self.tasks:
            raise UsageError(f"{self.name} has no tasks: give at least one")
        for i, task in enumerate(self.tasks, 1):
            self._check_task(task, f"task {i} of {self.name}")

    def _check_task(self, task: Task, name: str) -> None:
        if not len(task.train):
            raise UsageError(f"{name} has no training images: give some, or remove the task")
        data = self.data
        for what, indices, end in (
            ("training images", task.train, len(data.train_images)),
            ("test images", task.test, len(data.test_images)),
            ("classes", torch.tensor(task.classes), data.num_classes),
        ):
            if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < end:
                raise UsageError(
                    f"{name} has {what} from {int(indices.min())} to {int(indices.max())}, "
                    f"but the data set has those from 0 to {end - 1}: correct the indices"
                )
        if self.kind == "class-il":  # in gcil, test images are of earlier classes too
            labels = torch.cat([data.train_labels[task.train], data.test_labels[task.test]])
            if unexpected := set(labels.unique().tolist()) - set(task.classes):
                raise UsageError(f"{name} has images of class {min(unexpected)}: add it to the classes of the task")

    def check_test_images(self) -> None:
        """Refuse a stream with a task that has no test images."""
        for i, task in enumerate(self.tasks, 1):
            if not len(task.test):
                raise UsageError(f"task {i} of {self.name} has no test images: give some to evaluate it on")

    def __repr__(self) -> str:
        images = sum(len(task.train) for task in self.tasks)
        return f"Stream({self.name!r}, {self.kind}, {len(self.tasks)} tasks, {images} images of {self.data.name!r})"

    @property
    def evaluation_settings(self) -> tuple[str, ...]:
        """The settings in which it is evaluated: Class-IL, and Task-IL if every class belongs to one task."""
        return ("class_il", "task_il") if self.kind == "class-il" else ("class_il",)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the images, labels and tasks: the same for every method and seed."""
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
        """Return training images and labels, then test images and labels, on a device: one copy for all learners."""
        if device not in self._copies:
            d = self.data
            self._copies[device] = (
                d.train_images.to(device), d.train_labels.to(device),
                d.test_images.to(device), d.test_labels.to(device),
            )  # fmt: skip
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, tuple[Tensor, Tensor, Tensor, Tensor]]:
        return {}

    def phases(self, joint: bool = False) -> list[Tensor]:
        """Return the training indices of each task, or of all tasks together if `joint`."""
        train = [task.train for task in self.tasks]
        return [torch.cat(train)] if joint else train


DatasetLike = Dataset | tuple[Any, Any] | tuple[Any, Any, Any, Any]


def as_dataset(source: DatasetLike, validation: float = 0.0) -> Dataset:
    """Return a data set as it is, or made from (images, labels) or (images, labels, test images, test labels).

    With `validation`, that share of the training images replaces the test images, to choose hyperparameters without
    the test set.
    """
    if not isinstance(source, Dataset) and not (isinstance(source, tuple) and len(source) in (2, 4)):
        raise UsageError(
            f"cannot make a stream from a {type(source).__name__}: give a Dataset, (images, labels) or "
            "(images, labels, test images, test labels)"
        )
    data = source if isinstance(source, Dataset) else from_arrays(*source)
    if not 0 <= validation < 1:
        raise UsageError(
            f"validation is {validation}: give the share of training images to hold out, from 0 to below 1"
        )
    if not validation:
        return data
    return from_arrays(
        data.train_images, data.train_labels,
        class_names=data.class_names, name=data.name, layout="NCHW", test_fraction=validation,
    )  # fmt: skip


Order = Sequence[int] | Literal["given", "shuffled"]


def class_order(order: Order, classes: int, seed: int) -> np.ndarray:
    """Return the order of classes: by label, as listed, or shuffled by `seed`."""
    if isinstance(order, str):
        check_name("class order", order, ("given", "shuffled"))
        if not hasattr(seed, "__index__") or seed < 0:
            raise UsageError(f"seed = {seed!r} is invalid: expected a whole number from 0")
        return np.arange(classes) if order == "given" else np.random.default_rng(seed).permutation(classes)
    try:
        listed = np.array([index(c) for c in order])
    except TypeError:
        listed = np.array([])
    if sorted(listed) != list(range(classes)):
        raise UsageError(f"the class order is {order}: give each of the classes 0 … {classes - 1} once")
    return listed


def indices_of_classes(labels: Tensor, classes: Sequence[int]) -> Tensor:
    """Return the indices of all images of these classes, ascending."""
    return torch.isin(labels, torch.tensor(classes)).nonzero().flatten()
