"""GCIL (Mi et al., 2020): each task draws how many classes it has, which ones, and how many images of each."""

from typing import Literal

import numpy as np
import torch

from scommer.errors import UsageError, check_name
from scommer.streams.stream import DatasetLike, Order, Stream, Task, as_dataset, class_order, indices_of_classes

MAX_TRIES = 10_000  # at drawing the labels of a task so that each chosen class occurs


def gcil(
    source: DatasetLike,
    weights: Literal["uniform", "longtail"] = "uniform",
    *,
    tasks: int = 20,
    samples: int = 1000,
    max_classes: int = 50,
    decay: float = 0.984,
    order: Order = "given",
    seed: int = 1993,
    validation: float = 0.0,
    name: str = "gcil",
) -> Stream:
    """Return a generalised class-incremental stream from a data set or arrays (images, labels).

    The whole stream is drawn in advance from its own generator, so it is the same for every method and every training
    seed. Each image occurs in one task only. With `longtail`, a class has weight decay^n, where n is its position in
    the `order` of classes: by label, as listed, or shuffled by `seed`.
    """
    whole = all(hasattr(n, "__index__") and n >= 1 for n in (tasks, samples, max_classes))
    if not whole or not 0 < decay <= 1:
        raise UsageError(
            f"invalid tasks = {tasks}, samples = {samples}, max_classes = {max_classes} or decay = {decay}: "
            "give whole numbers from 1 for the first three, and a decay above 0 and up to 1"
        )
    if not hasattr(seed, "__index__") or seed < 0:
        raise UsageError(f"seed = {seed!r} is invalid: expected a whole number from 0")
    check_name("weights", weights, ("uniform", "longtail"))
    data = as_dataset(source, validation)
    position = np.argsort(class_order(order, data.num_classes, seed))  # of each class in the order
    rng = np.random.default_rng(seed)
    labels = data.train_labels.numpy()
    left = {c: np.flatnonzero(labels == c) for c in range(data.num_classes)}
    seen: set[int] = set()
    made = []
    for t in range(tasks):
        available = [c for c, images in left.items() if len(images)]
        if not available:
            raise UsageError(f"the training images ran out after {t} of {tasks} tasks: give fewer tasks or samples")
        count = int(rng.integers(1, min(max_classes, samples, len(available)) + 1))
        chosen = np.sort(rng.choice(available, count, replace=False))
        weight = np.ones(count) if weights == "uniform" else decay ** position[chosen].astype(float)
        sizes = _sizes(rng, weight / weight.sum(), samples)
        train = []
        for c, size in zip(chosen.tolist(), sizes.tolist(), strict=True):
            picked = rng.choice(left[c], min(size, len(left[c])), replace=False)
            left[c] = np.setdiff1d(left[c], picked)
            train.append(picked)
        seen.update(chosen.tolist())
        test = indices_of_classes(data.test_labels, sorted(seen))
        if not len(test):
            raise UsageError(f"classes {sorted(seen)} have no test images: add some, or remove these classes")
        made.append(Task(torch.from_numpy(np.concatenate(train)), test, tuple(chosen.tolist())))
    return Stream(name, "gcil", data, tuple(made), float(validation))


def _sizes(rng: np.random.Generator, probability: np.ndarray, samples: int) -> np.ndarray:
    """Draw how many of `samples` labels each class gets, repeatedly until each gets at least one."""
    for _ in range(MAX_TRIES):
        sizes = np.bincount(rng.choice(len(probability), samples, p=probability), minlength=len(probability))
        if sizes.all():
            return sizes
    raise UsageError(
        f"{samples} samples do not cover all of {len(probability)} classes: give more samples or fewer classes"
    )
