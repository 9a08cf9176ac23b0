"""Streams by name. To add one, add a line here; without a preset, some settings are fitted to its images."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from scommer import data
from scommer.errors import lookup
from scommer.registry import Registry
from scommer.streams.class_il import class_il
from scommer.streams.gcil import gcil
from scommer.streams.stream import Stream, Task

Source = str | Callable[[Path], data.Dataset]  # the name of a data set, or a function that reads one from a folder
Maker = Callable[..., Stream]  # called as make(dataset, validation=, name=)


def _is_entry(entry: object) -> bool:
    match entry:
        case (source, make):
            return (isinstance(source, str) or callable(source)) and callable(make)
    return False


STREAMS: Registry[tuple[Source, Maker]] = Registry(
    "scommer.streams",
    "a pair: the name of a data set or a function that reads one, and a function that makes the stream",
    _is_entry,
    {
        "s-digits": ("digits", partial(class_il, tasks=5)),
        "s-cifar10": ("cifar10", partial(class_il, tasks=5)),
        "s-cifar100": ("cifar100", partial(class_il, tasks=5)),
        "s-cifar100-10": ("cifar100", partial(class_il, tasks=10)),
        "s-cifar100-20": ("cifar100", partial(class_il, tasks=20)),
        "gcil-uniform": ("cifar100", partial(gcil, weights="uniform")),
        "gcil-longtail": ("cifar100", partial(gcil, weights="longtail")),
    },
)


def load(name: str, root: Path | None = None, validation: float = 0.0) -> Stream:
    """Return a stream by name, made of a data set below the folder `root`."""
    source, make = lookup("stream", name, STREAMS)
    dataset = data.load(source, root) if isinstance(source, str) else source(data.data_root(root))
    return make(dataset, validation=validation, name=name)


__all__ = ["STREAMS", "Stream", "Task", "class_il", "gcil", "load"]
