"""A data set in memory: images and labels for training, and others held out for testing."""

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

CHANNELS = (1, 3, 4)  # grey, RGB, RGBA: the axis lengths that "auto" takes for channels


@dataclass(frozen=True, eq=False)  # two tensors do not compare to one truth value, so no generated __eq__
class Dataset:
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
    """A data set from arrays, copied; without test arrays, `test_fraction` of every class is held out."""
    if (test_images is None) != (test_labels is None):
        raise UsageError("only one of test_images and test_labels was given: pass both, or neither")
    x, y = as_images(images, "images", layout), _labels(labels, "labels", len(images))
    names = tuple(class_names) if class_names is not None else _numbered(y)
    if len(set(names)) != len(names):
        raise UsageError(f"of {len(names)} class names {len(set(names))} differ: give each class a name of its own")
    _check_range(y, names, "labels")
    if test_images is None or test_labels is None:
        held_out = _held_out(y, test_fraction, seed)
        x, test_x, y, test_y = x[~held_out], x[held_out], y[~held_out], y[held_out]
    else:
        test_x = as_images(test_images, "test_images", layout)
        test_y = _labels(test_labels, "test_labels", len(test_images))
        _check_range(test_y, names, "test_labels")
        _check_alike(x, y, test_x, test_y)
    return Dataset(
        name=name,
        train_images=torch.from_numpy(x),
        train_labels=torch.from_numpy(y),
        test_images=torch.from_numpy(test_x),
        test_labels=torch.from_numpy(test_y),
        class_names=names,
    )


def _array(given: object, what: str) -> NDArray[Any]:
    if isinstance(given, Tensor):
        tensor = given.detach().cpu()
        given = (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16
    if not isinstance(given, np.ndarray):
        raise UsageError(f"{what} is a {type(given).__name__}: pass a numpy array or a torch tensor")
    if given.size == 0:
        raise UsageError(f"{what} is empty (shape {given.shape}): pass at least one image with its label")
    return given


def as_images(images: Array, what: str = "images", layout: Layout = "auto") -> NDArray[Any]:
    """A contiguous copy as [N, C, H, W], uint8 or float32; vectors [N, D] as images of one row."""
    array = _array(images, what)
    if layout not in get_args(Layout):
        raise UsageError(f"layout is {layout!r}: pass 'auto', 'NHWC' or 'NCHW'")
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
        raise UsageError(f"{what} holds NaN, infinite or too large values: mend or drop those images")
    return array


def _channels_last(shape: tuple[int, ...], what: str, layout: str) -> bool:
    if layout in ("NHWC", "NCHW"):
        return layout == "NHWC"
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        why = "both could be" if first else "neither is"
        raise UsageError(
            f"{what} has shape {shape}, where the channels should be axis 1 or axis 3, of length 1, 3 or 4, "
            f"but {why}: say so with layout='NHWC' or 'NCHW' (of from_arrays)"
        )
    return last


def _labels(given: object, what: str, length: int) -> NDArray[np.int64]:
    array = _array(given, what)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{what} has dtype {array.dtype}, expected class numbers of an integer dtype")
    if array.shape != (length,):
        raise UsageError(f"{what} has shape {array.shape}, expected ({length},): pass one label per image")
    if array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise UsageError(f"{what} go from {array.min()} to {array.max()}: number the classes from 0")
    return array.astype(np.int64)


def _numbered(labels: NDArray[np.int64]) -> tuple[str, ...]:
    """The class names "0", "1", ... where every number up to the last is in use."""
    used = np.unique(labels)
    if len(used) != int(used[-1]) + 1:
        missing = next(i for i, label in enumerate(used) if i != label)
        raise UsageError(
            f"labels go up to {used[-1]}, but class {missing} has no images: "
            "number the classes 0, 1, 2, ..., or name those without images with class_names (of from_arrays)"
        )
    return tuple(str(label) for label in used)


def _check_range(labels: NDArray[np.int64], names: tuple[str, ...], what: str) -> None:
    if labels.max() >= len(names):
        raise UsageError(
            f"{what} hold class {labels.max()}, but there are {len(names)} classes, counted from 0: "
            "mend the labels, or name every class with class_names (of from_arrays)"
        )


def _check_alike(x: NDArray[Any], y: NDArray[np.int64], test_x: NDArray[Any], test_y: NDArray[np.int64]) -> None:
    if test_x.shape[1:] != x.shape[1:] or test_x.dtype != x.dtype:
        raise UsageError(
            f"test_images are {test_x.dtype} {test_x.shape[1:]} (C,H,W), images are {x.dtype} {x.shape[1:]}: "
            "pass both in the same form"
        )
    unseen = np.setdiff1d(test_y, y)
    if unseen.size:
        raise UsageError(f"test_labels hold class {unseen[0]}, which has no training images: drop those images")


def _held_out(labels: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """A mask of the test part, drawn class by class; a class with a single image keeps it for training."""
    if not 0 < fraction < 1:
        raise UsageError(f"test_fraction is {fraction}: pass a number between 0 and 1, such as 0.2")
    generator = np.random.default_rng(seed)
    mask = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        mask[members[:count]] = True
    if not mask.any():
        raise UsageError("every class has a single image, so none can be held out: add images, or give test images")
    return mask
