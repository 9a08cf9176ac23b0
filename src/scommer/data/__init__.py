"""Data sets: by name, from arrays, from folders of images."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scommer.data.cifar import load_cifar
from scommer.data.dataset import Dataset, from_arrays
from scommer.data.digits import load_digits
from scommer.data.folder import from_folder, read_images
from scommer.errors import lookup
from scommer.files import expand_user

__all__ = ["DATASETS", "Dataset", "data_root", "from_arrays", "from_folder", "load", "read_images"]

DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda root: load_digits(),
    "cifar10": partial(load_cifar, "cifar10"),
    "cifar100": partial(load_cifar, "cifar100"),
}


def data_root(given: Path | None = None) -> Path:
    """Return the folder that holds the data sets: the one given, else $SCOMMER_DATA, else the user's cache."""
    if given is not None:
        return expand_user(given)
    if named := os.environ.get("SCOMMER_DATA"):
        return expand_user(named)
    return expand_user(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "scommer"


def load(name: str, root: Path | None = None) -> Dataset:
    """Return the data set `name`, from its files below `root` if it has any."""
    return lookup("data set", name, DATASETS)(data_root(root))
