"""Class-IL: the classes are split into tasks, which are learned one after another."""

import numpy as np

from scommer.errors import UsageError
from scommer.streams.stream import DatasetLike, Order, Stream, Task, as_dataset, class_order, indices_of_classes


def class_il(
    source: DatasetLike,
    tasks: int,
    *,
    order: Order = "given",
    seed: int = 0,
    validation: float = 0.0,
    name: str = "class-il",
) -> Stream:
    """Return a class-incremental stream of `tasks` tasks from a data set or arrays (images, labels).

    Classes are ordered by label, as listed in `order`, or shuffled by `seed`. If they do not divide evenly, the
    first tasks have one more.
    """
    data = as_dataset(source, validation)
    n = data.num_classes
    if not hasattr(tasks, "__index__") or not 1 <= tasks <= n:
        raise UsageError(f"cannot split {n} classes into {tasks!r} tasks: give a whole number from 1 to {n}")
    classes = class_order(order, n, seed)
    groups = [tuple(int(c) for c in group) for group in np.array_split(classes, tasks)]
    made = []
    for group in groups:
        train, test = (indices_of_classes(labels, group) for labels in (data.train_labels, data.test_labels))
        if not len(train) or not len(test):
            raise UsageError(f"classes {list(group)} have {len(train)} training and {len(test)} test images: add some")
        made.append(Task(train, test, group))
    return Stream(name, "class-il", data, tuple(made), float(validation))
