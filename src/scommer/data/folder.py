"""Images in files: one folder a class, as most people keep them."""

import struct
import warnings
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from scommer.data.dataset import Dataset, from_arrays
from scommer.errors import RunWarning, UsageError

SUFFIXES = {".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # by channels
GREY = {"1", "L", "LA", "I;16", "I;16B", "I;16L", "I"}
HELD_OUT = ("test", "val", "valid", "validation")
BROKEN = (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)  # of Pillow


def from_folder(
    folder: Path | str,
    *,
    size: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    name: str | None = None,
) -> Dataset:
    """A data set from `folder/CLASS/…`, or from `folder/train/CLASS/…` and `folder/test/CLASS/…` (or `val`).

    Classes are in the order of their names, or of their numbers where all names are numbers. Files that are not of
    a known kind, and images of no class, are left out, with a warning. Without a `test` folder, `test_fraction` of
    every class is held out.
    With `size`, images are cropped to a square in the middle and scaled to so many pixels; without, all must have
    one size. They are grey if all are, else RGB.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: give one that has a folder of images for each class")
    train, test = _parts(folder)
    classes = [path.name for path in _folders(train)]
    if len(classes) < 2:
        raise UsageError(f"{folder} has {len(classes)} folders of images: give one that has a folder for each class")
    files, labels, others = _listed(train, classes)
    tested, their, more = _listed(test, classes) if test else ([], [], [])
    _tell_of(others + more)
    if stray := _beside(*{folder, train, test or train}):
        how_many = "an image is" if len(stray) == 1 else f"{len(stray)} images are"
        warnings.warn(f"{how_many} beside the classes' folders and left out: {stray[0]}", RunWarning, stacklevel=2)
    images = read_images([*files, *tested], None, size)
    n = len(files)
    held_out = (images[n:], np.array(their)) if test else (None, None)
    return from_arrays(
        images[:n], np.array(labels), *held_out, class_names=classes, name=name or folder.resolve().name, layout="NHWC",
        test_fraction=test_fraction, seed=seed,
    )  # fmt: skip


def image_files(places: Iterable[Path]) -> list[Path]:
    """Files as they are given, and all images below the folders among them, in the order of their names."""
    found: list[Path] = []
    left_out: list[Path] = []
    for place in places:
        if not place.exists():
            raise UsageError(f"there is no file or folder {place}")
        below, others = _below(place) if place.is_dir() else ([place], [])
        if not below:
            raise UsageError(f"{place} has no images ({', '.join(sorted(SUFFIXES))})")
        found += below
        left_out += others
    _tell_of(left_out)
    return found


def read_images(
    files: Sequence[Path], channels: int | None, size: int | tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """The images of files as [N, H, W, C], in `size` (a square, or height and width) where one is given.

    Without `channels` they are grey if all are, else RGB.
    """
    if size is not None and not isinstance(size, tuple):
        if not hasattr(size, "__index__"):
            raise UsageError(f"a size of {size!r} pixels is impossible: give a whole number")
        size = (index(size), index(size))
    if size and min(size) < 1:
        raise UsageError(f"a size of {size[0]} pixels is impossible: give 1 or more")
    images, broken = [], {}
    for path in files:
        try:
            images.append(_read(path, MODES[channels] if channels else None, size))
        except UsageError as e:  # all are named at once
            broken[path] = e
    if len(broken) == 1:
        raise next(iter(broken.values()))
    if broken:
        named = ", ".join(map(str, list(broken)[:5])) + (" …" if len(broken) > 5 else "")
        raise UsageError(f"cannot read {len(broken)} of {len(files)} images, which are {named}: mend or remove them")
    most = max(image.shape[2] for image in images)
    images = [image.repeat(most // image.shape[2], axis=2) for image in images]  # grey among coloured ones
    for path, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            (h, w), (h0, w0) = image.shape[:2], images[0].shape[:2]
            raise UsageError(f"{path} is {w} × {h} pixels, {files[0]} is {w0} × {h0}: give a size for all, such as 32")
    return np.stack(images)


def _read(path: Path, mode: str | None, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    try:
        with Image.open(path) as opened:
            mode = mode or ("L" if opened.mode in GREY else "RGB")
            image = _converted(ImageOps.exif_transpose(opened), mode)
    except BROKEN as e:
        raise _unreadable(path, e) from e
    if size:
        image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.BICUBIC)
    array = np.asarray(image, np.uint8)
    return array[..., None] if mode == "L" else array


def _converted(image: Image.Image, mode: str) -> Image.Image:
    """In the wanted mode: of 16 bits the upper 8, and on white where it is transparent."""
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers")
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) >> 8).astype(np.uint8))
    if mode != "RGBA" and image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _unreadable(path: Path, e: Exception) -> UsageError:
    why = "no image that is known" if isinstance(e, UnidentifiedImageError) else str(e)
    return UsageError(f"cannot read {path} ({why}): mend or remove it")


def _parts(folder: Path) -> tuple[Path, Path | None]:
    """The folder of the classes for training, and that for testing where there is one."""
    parts = {path.name.lower(): path for path in _folders(folder)}
    others = [name for name in parts if name != "train"]
    if "train" not in parts or not others or not set(others) <= set(HELD_OUT):
        return folder, None
    if len(others) > 1:
        raise UsageError(f"{folder} has {' and '.join(others)} beside train: leave one of them to test on")
    return parts["train"], parts[others[0]]


def _folders(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    numbers = all(path.name.isdecimal() for path in found)
    return sorted(found, key=lambda path: (int(path.name) if numbers else 0, path.name))


def _listed(folder: Path, classes: Sequence[str]) -> tuple[list[Path], list[int], list[Path]]:
    """The files of each class and their labels, and what else lies there."""
    strange = next((path for path in _folders(folder) if path.name not in classes), None)
    if strange:
        raise UsageError(f"{strange} is of a class that has no folder for training: remove it, or add one")
    files: list[Path] = []
    labels: list[int] = []
    left_out: list[Path] = []
    for c, name in enumerate(classes):
        below, others = _below(folder / name)
        if not below:
            raise UsageError(f"{folder / name} has no images: add some, or remove the class")
        files += below
        labels += [c] * len(below)
        left_out += others
    return files, labels, left_out


def _beside(*folders: Path) -> list[Path]:
    """Images beside the folders in these: they are of no class."""
    files = (path for f in folders for path in f.iterdir() if path.is_file() and not path.name.startswith("."))
    return sorted(path for path in files if path.suffix.lower() in SUFFIXES)


def _below(folder: Path) -> tuple[list[Path], list[Path]]:
    """All images below a folder, in the order of their names, and other files; hidden ones are neither."""
    images: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            (images if path.suffix.lower() in SUFFIXES else others).append(path)
    return images, others


def _tell_of(left_out: Sequence[Path]) -> None:
    """Warns of files that are no images of a known kind."""
    if left_out:
        kinds = ", ".join(sorted({path.suffix.lower() or "no ending" for path in left_out})[:5])
        how_many = "a file is" if len(left_out) == 1 else f"{len(left_out)} files are"
        warnings.warn(f"{how_many} left out ({kinds}), such as {left_out[0]}", RunWarning, stacklevel=3)
