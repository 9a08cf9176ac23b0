"""Class-IL: the classes are split into tasks that come one after the other."""

import numpy as np

from scommer.errors import UsageError
from scommer.streams.stream import Order, Source, Stream, Task, as_dataset, class_order, of_classes


def class_il(
    source: Source,
    tasks: int,
    *,
    order: Order = "given",
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
    if not hasattr(tasks, "__index__") or not 1 <= tasks <= n:
        raise UsageError(f"{n} classes cannot make {tasks!r} tasks: give a whole number from 1 to {n}")
    classes = class_order(order, n, seed)
    groups = [tuple(int(c) for c in group) for group in np.array_split(classes, tasks)]
    made = []
    for group in groups:
        train, test = of_classes(data.train_labels, group), of_classes(data.test_labels, group)
        if not len(train) or not len(test):
            raise UsageError(
                f"classes {list(group)} have {len(train)} training and {len(test)} test images: both must be some"
            )
        made.append(Task(train, test, group))
    return Stream(name, "class-il", data, tuple(made), float(validation))
