"""A data set in memory: images and labels for training and for testing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scommer.errors import UsageError

Layout = Literal["auto", "NHWC", "NCHW"]
Array = NDArray[Any] | Tensor

CHANNELS = (1, 3, 4)  # grey, RGB, RGBA: the lengths by which "auto" recognises the axis of channels


@dataclass(frozen=True, eq=False)  # comparing tensors does not give one truth value
class Dataset:
    """Images and labels for training and testing, and the names of the classes."""

    name: str
    train_images: Tensor  # [N, C, H, W], uint8 or float32
    train_labels: Tensor  # int64 [N]
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width


def from_arrays(
    images: Array,
    labels: Array,
    test_images: Array | None = None,
    test_labels: Array | None = None,
    *,
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
    layout: Layout = "auto",
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Return a data set of copies of these arrays; without test arrays, hold out `test_fraction` of every class."""
    if (test_images is None) != (test_labels is None):
        raise UsageError("only one of test_images and test_labels was given: give both, or neither")
    x, y = as_nchw(images, "images", layout), _check_labels(labels, "labels", len(images))
    names = tuple(map(str, class_names)) if class_names is not None else _numbers_as_names(y)
    if len(set(names)) != len(names):
        raise UsageError(
            f"{len(names)} class names were given, {len(set(names))} of them distinct: give each class a different name"
        )
    _check_range(y, names, "labels")
    if test_images is None or test_labels is None:
        held_out = _choose_test_images(y, test_fraction, seed)
        x, test_x, y, test_y = x[~held_out], x[held_out], y[~held_out], y[held_out]
    else:
        test_x = as_nchw(test_images, "test_images", layout)
        test_y = _check_labels(test_labels, "test_labels", len(test_images))
        _check_range(test_y, names, "test_labels")
        _check_same_form(x, y, test_x, test_y)
    return Dataset(
        name=name,
        train_images=torch.from_numpy(x),
        train_labels=torch.from_numpy(y),
        test_images=torch.from_numpy(test_x),
        test_labels=torch.from_numpy(test_y),
        class_names=names,
    )


def _to_array(given: object, what: str) -> NDArray[Any]:
    if isinstance(given, Tensor):
        tensor = given.detach().cpu()
        given = (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # NumPy has no bfloat16
    if not isinstance(given, np.ndarray):
        raise UsageError(f"{what} is a {type(given).__name__}: give a NumPy array or a torch tensor")
    if given.size == 0:
        raise UsageError(f"{what} is empty (shape {given.shape}): give at least one image with its label")
    return given


def as_nchw(images: Array, what: str = "images", layout: Layout = "auto") -> NDArray[Any]:
    """Return a contiguous copy of images as [N, C, H, W], uint8 or float32; vectors [N, D] become images of one row."""
    array = _to_array(images, what)
    if layout not in get_args(Layout):
        raise UsageError(f"layout is {layout!r}: give 'auto', 'NHWC' or 'NCHW'")
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise UsageError(f"{what} has dtype {array.dtype}, expected uint8 or float: convert it first")
    if array.ndim == 2:
        array = array[:, None, None]
    elif array.ndim == 3:
        array = array[:, None]
    elif array.ndim != 4:
        raise UsageError(
            f"{what} has shape {array.shape}, expected [N,H,W], [N,H,W,C] or [N,C,H,W], or [N,D] for vectors: "
            "reshape it first"
        )
    elif _channels_last(array.shape, what, layout):
        array = array.transpose(0, 3, 1, 2)
    if array.dtype == np.uint8:
        return np.array(array, order="C")
    with np.errstate(over="ignore"):  # a float64 too large for float32 is reported below
        array = np.array(array, dtype=np.float32, order="C")
    if not np.isfinite(array).all():
        raise UsageError(f"{what} contains NaN, infinite or too large values: correct or remove those images")
    return array


def is_row(images: Tensor) -> bool:
    """Return whether images [N, C, H, W] are rows of features [N, 1, 1, D]."""
    return images.shape[1] == images.shape[2] == 1


def _channels_last(shape: tuple[int, ...], what: str, layout: str) -> bool:
    if layout in ("NHWC", "NCHW"):
        return layout == "NHWC"
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        why = "both could be" if first else "neither can be"
        raise UsageError(
            f"{what} has shape {shape}: channels are expected in axis 1 or axis 3, with length 1, 3 or 4, "
            f"but {why}; give layout='NHWC' or layout='NCHW' (an argument of from_arrays)"
        )
    return last


def _check_labels(given: object, what: str, length: int) -> NDArray[np.int64]:
    array = _to_array(given, what)
    if array.dtype.kind not in "iu":
        raise UsageError(
            f"{what} has dtype {array.dtype}, expected an integer dtype: give the class number of each image"
        )
    if array.shape != (length,):
        raise UsageError(f"{what} has shape {array.shape}, expected ({length},): give one label per image")
    if array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise UsageError(f"{what} range from {array.min()} to {array.max()}: number the classes from 0")
    return array.astype(np.int64)


def _numbers_as_names(labels: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the class names "0", "1", … if every number up to the last has images."""
    used = np.unique(labels)
    if len(used) != int(used[-1]) + 1:
        missing = next(i for i, label in enumerate(used) if i != label)
        raise UsageError(
            f"labels go up to {used[-1]}, but class {missing} has no images: "
            "number the classes 0, 1, 2, …, or give class_names to from_arrays"
        )
    return tuple(str(label) for label in used)


def _check_range(labels: NDArray[np.int64], names: tuple[str, ...], what: str) -> None:
    if labels.max() >= len(names):
        raise UsageError(
            f"{what} contain class {labels.max()}, but there are {len(names)} classes, numbered from 0: "
            "correct the labels, or give the name of every class to from_arrays as class_names"
        )


def _check_same_form(x: NDArray[Any], y: NDArray[np.int64], test_x: NDArray[Any], test_y: NDArray[np.int64]) -> None:
    if test_x.shape[1:] != x.shape[1:] or test_x.dtype != x.dtype:
        raise UsageError(
            f"test_images are {test_x.dtype} {test_x.shape[1:]} (C,H,W), images are {x.dtype} {x.shape[1:]}: "
            "give both with the same dtype and shape"
        )
    unseen = np.setdiff1d(test_y, y)
    if unseen.size:
        raise UsageError(f"test_labels contain class {unseen[0]}, which has no training images: remove those images")


def _choose_test_images(labels: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask of test images, drawn from each class; the image of a class with a single one is not drawn."""
    if not 0 <= fraction < 1:
        raise UsageError(f"test_fraction is {fraction}: give a number from 0 to below 1, for example 0.2")
    if not fraction:
        return np.zeros(len(labels), dtype=np.bool_)
    generator = np.random.default_rng(seed)
    mask = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        mask[members[:count]] = True
    if not mask.any():
        raise UsageError(
            "every class has a single image, so none can be held out for testing: add images, or give test images"
        )
    return mask
