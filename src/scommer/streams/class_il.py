"""Class-IL: the classes are split into tasks that come one after the other."""

from collections.abc import Sequence
from operator import index
from typing import Literal

import numpy as np

from scommer.errors import UsageError, unknown
from scommer.streams.stream import Source, Stream, Task, as_dataset, of_classes


def class_il(
    source: Source,
    tasks: int,
    *,
    order: Sequence[int] | Literal["given", "shuffled"] = "given",
    seed: int = 0,
    validation: float = 0.0,
    name: str = "class-il",
) -> Stream:
    """A class-incremental stream of `tasks` tasks over a data set or arrays (images, labels).

    Classes come in label order, in the `order` listed, or shuffled by `seed`; where they do not divide
    evenly, the first tasks have one more.
    """
    data = as_dataset(source, validation)
    n = data.num_classes
    if not 1 <= tasks <= n:
        raise UsageError(f"{n} classes cannot make {tasks} tasks: give a number from 1 to {n}")
    if isinstance(order, str):
        if order not in ("given", "shuffled"):
            raise unknown("class order", order, ("given", "shuffled"))
        classes = np.arange(n) if order == "given" else np.random.default_rng(seed).permutation(n)
    else:
        try:
            classes = np.array([index(c) for c in order])
        except TypeError:
            classes = np.array([])
        if sorted(classes) != list(range(n)):
            raise UsageError(f"the class order must name each of the classes 0 … {n - 1} once; it is {order}")
    groups = [tuple(int(c) for c in group) for group in np.array_split(classes, tasks)]
    made = []
    for group in groups:
        train, test = of_classes(data.train_labels, group), of_classes(data.test_labels, group)
        if not len(train) or not len(test):
            raise UsageError(
                f"classes {list(group)} have {len(train)} training and {len(test)} test images: both must be some"
            )
        made.append(Task(train, test, group))
    return Stream(name, "class-il", data, tuple(made))
