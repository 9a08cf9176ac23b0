"""Streams by name. To add one, add a line here; without a preset, its settings follow its images."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from scommer import data
from scommer.errors import lookup
from scommer.streams.class_il import class_il
from scommer.streams.gcil import gcil
from scommer.streams.stream import Stream, Task

# name: (data set, function that makes a stream of it)
STREAMS: dict[str, tuple[str, Callable[..., Stream]]] = {
    "s-digits": ("digits", partial(class_il, tasks=5)),
    "s-cifar10": ("cifar10", partial(class_il, tasks=5)),
    "s-cifar100": ("cifar100", partial(class_il, tasks=5)),
    "s-cifar100-10": ("cifar100", partial(class_il, tasks=10)),
    "s-cifar100-20": ("cifar100", partial(class_il, tasks=20)),
    "gcil-uniform": ("cifar100", partial(gcil, weights="uniform")),
    "gcil-longtail": ("cifar100", partial(gcil, weights="longtail")),
}


def load(name: str, root: Path | None = None, validation: float = 0.0) -> Stream:
    """Return the stream `name`; its data set is below `root`."""
    dataset, make = lookup("stream", name, STREAMS)
    return make(data.load(dataset, root), validation=validation, name=name)


__all__ = ["STREAMS", "Stream", "Task", "class_il", "gcil", "load"]
