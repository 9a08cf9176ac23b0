"""Image files, with one folder per class."""

import os
import warnings
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from scommer.data.dataset import Dataset, from_arrays
from scommer.errors import RunWarning, UnreadableImage, UsageError
from scommer.files import expand_user

# What Pillow may decode, whatever a file's name says: its other decoders start programs (EPS) or are little tested.
FORMATS = {
    "BMP": {".bmp"}, "GIF": {".gif"}, "JPEG": {".jfif", ".jpeg", ".jpg"}, "PNG": {".png"}, "PPM": {".pgm", ".ppm"},
    "TIFF": {".tif", ".tiff"}, "WEBP": {".webp"},
}  # fmt: skip
SUFFIXES = set().union(*FORMATS.values())
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of Pillow, by number of channels
GREY_MODES = {"1", "L", "LA", "I;16", "I;16B", "I;16L", "I"}
TEST_FOLDERS = ("test", "val", "valid", "validation")


def from_folder(
    folder: Path | str,
    *,
    size: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    name: str | None = None,
) -> Dataset:
    """Return a data set from `folder/CLASS/…`, or from `folder/train/CLASS/…` and `folder/test/CLASS/…` (or `val`).

    Classes are sorted by name, or by number if all names are numbers. Files of unsupported types and images outside
    the class folders are skipped with a warning. Without a `test` folder, `test_fraction` of every class is held out.
    With `size`, images are cropped to the central square and resized to this many pixels; without it, all must have
    the same size. They are grey if all files are, else RGB.
    """
    folder = expand_user(folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: give one that contains a folder of images for each class")
    train, test = _split_folders(folder)
    classes = [path.name for path in _subfolders(train)]
    if len(classes) < 2:
        raise UsageError(
            f"{folder} contains {len(classes)} folders, expected 2 or more: give the parent folder of the class folders"
        )
    files, labels, skipped = _labelled_files(train, classes)
    if unknown := next((path for path in _subfolders(test or train) if path.name not in classes), None):
        raise UsageError(f"{unknown} is a class without a training folder: add one, or remove this one")
    test_files, test_labels, also_skipped = _labelled_files(test, classes) if test else ([], [], [])
    _warn_of_skipped(skipped + also_skipped)
    _warn_of_stray({folder, train, test or train})
    images = read_images([*files, *test_files], None, size)
    n = len(files)
    test_part = (images[n:], np.array(test_labels)) if test else (None, None)
    return from_arrays(
        images[:n], np.array(labels), *test_part, class_names=classes, name=name or folder.resolve().name,
        layout="NHWC", test_fraction=test_fraction, seed=seed,
    )  # fmt: skip


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files among `paths`, and all images below the folders among them, sorted by name."""
    found: list[Path] = []
    skipped: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
        images, others = _files_below(path) if path.is_dir() else ([path], [])
        if not images:
            raise UsageError(f"{path} contains no images: expected files with {', '.join(sorted(SUFFIXES))}")
        found += images
        skipped += others
    _warn_of_skipped(skipped)
    return found


def class_files(folder: Path | str) -> tuple[list[Path], list[str]]:
    """Return the image files below `folder/CLASS/…`, and the class of each."""
    folder = expand_user(folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: give one that contains a folder of images for each class")
    found = _subfolders(folder)
    if not found:
        raise UsageError(f"{folder} contains no folders: give the parent folder of the class folders")
    train, test = _split_folders(folder)
    if test:
        raise UsageError(f"{folder} contains {train.name} and {test.name}: give the one to learn from")
    empty = [path for path in found if not _files_below(path)[0]]
    if len(empty) == len(found):
        raise UsageError(f"{folder} contains no images: expected files with {', '.join(sorted(SUFFIXES))}")
    if empty:
        warnings.warn(f"skipped {_count(empty, 'folder')} without images: {_first(empty)}", RunWarning, stacklevel=2)
    classes = [path.name for path in found if path not in empty]
    files, labels, skipped = _labelled_files(folder, classes)
    _warn_of_skipped(skipped)
    _warn_of_stray({folder})
    return files, [classes[label] for label in labels]


def read_images(
    files: Sequence[Path | str], channels: int | None = None, size: int | tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """Return the images as [N, H, W, C], resized to `size` if given: one number, or height and width.

    They are cropped to the centre where the shape differs. Without `channels` they are grey if all files are, else RGB.
    """
    paths = [expand_user(path) for path in files]
    if not paths:
        raise UsageError("there are no images: give at least one file")
    if channels is not None and channels not in MODES:
        raise UsageError(f"channels is {channels!r}: give one of {', '.join(map(str, MODES))}")
    if size is not None and not isinstance(size, tuple):
        if not hasattr(size, "__index__"):
            raise UsageError(f"size is {size!r}: give a whole number of pixels")
        size = (index(size), index(size))
    if size and min(size) < 1:
        raise UsageError(f"size is {size[0]}: give at least 1 pixel")
    if size:
        _check_memory(len(files), size)
    images, broken = [], {}
    for path in paths:
        try:
            images.append(_read(path, MODES[channels] if channels else None, size))
        except UsageError as e:  # reported together below
            broken[path] = e
    if len(broken) == 1:
        raise next(iter(broken.values()))
    if broken:
        named = ", ".join(map(str, list(broken)[:5])) + (" …" if len(broken) > 5 else "")
        raise UnreadableImage(f"cannot read {len(broken)} of {len(files)} images: replace or remove {named}")
    most = max(image.shape[2] for image in images)
    images = [image.repeat(most // image.shape[2], axis=2) for image in images]  # grey ones among RGB
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            (h, w), (h0, w0) = image.shape[:2], images[0].shape[:2]
            raise UsageError(
                f"{path} is {w} × {h} pixels, {files[0]} is {w0} × {h0}: give one size for all, for example 32"
            )
    return np.stack(images)


def is_grey(path: Path) -> bool:
    """Return whether an image file is grey, by its header."""
    with Image.open(path, formats=list(FORMATS)) as opened:
        return opened.mode in GREY_MODES


def warn_of_converted(grey: Sequence[bool], channels: int) -> None:
    """Warn once of all colour files for a grey model, or of all grey files for a colour model."""
    wanted = channels == 1
    if converted := sum(found != wanted for found in grey):
        why = (
            "in colour, but the model takes grey images: their colours are ignored"
            if wanted
            else "grey, but the model takes colour images: all their channels are equal"
        )
        are = "is" if converted == 1 else "are"
        warnings.warn(f"{converted} of {len(grey)} images {are} {why}", RunWarning, stacklevel=3)


def _check_memory(images: int, size: tuple[int, int]) -> None:
    """Refuse images that cannot fit into memory, before the system kills the process."""
    needed, there = 2 * images * size[0] * size[1] * 3, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UsageError(
            f"{images} images of {size[0]} × {size[1]} pixels need {needed / 2**30:.0f} GiB, but this machine has "
            f"{there / 2**30:.0f} GiB: give a smaller size, or fewer images"
        )


def _read(path: Path, mode: str | None, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=list(FORMATS)) as opened:
                mode = mode or ("L" if opened.mode in GREY_MODES else "RGB")
                image = _convert(ImageOps.exif_transpose(opened), mode)
    except Exception as e:  # a damaged or hostile file may raise anything
        raise _unreadable(path, e) from e
    if size:
        image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.BICUBIC)
    return as_array(image, mode)


def as_array(image: Image.Image, mode: str | None = None) -> NDArray[np.uint8]:
    """Return a Pillow image as [H, W, C], grey or RGB as it is, or in this mode."""
    mode = mode or ("L" if image.mode in GREY_MODES else "RGB")
    array = np.asarray(_convert(image, mode), np.uint8)
    return array[..., None] if mode == "L" else array


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Convert to the mode: the upper 8 of 16 bits, and a white background where the image is transparent."""
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers")
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) >> 8).astype(np.uint8))
    if mode != "RGBA" and image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _unreadable(path: Path, e: Exception) -> UnreadableImage:
    unknown = isinstance(e, UnidentifiedImageError)
    why = f"not one of {', '.join(FORMATS)}" if unknown else str(e) or type(e).__name__
    return UnreadableImage(f"cannot read {path} ({why}): replace or remove it")


def _split_folders(folder: Path) -> tuple[Path, Path | None]:
    """Return the folder with the training classes, and the one with the test classes if there is one."""
    parts = {path.name.lower(): path for path in _subfolders(folder)}
    others = [name for name in parts if name != "train"]
    if "train" not in parts or not others or not set(others) <= set(TEST_FOLDERS):
        return folder, None
    if len(others) > 1:
        raise UsageError(f"{folder} contains {' and '.join(others)} besides train: keep one of them as the test images")
    return parts["train"], parts[others[0]]


def _subfolders(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    numbers = all(path.name.isdecimal() for path in found)
    return sorted(found, key=lambda path: (int(path.name) if numbers else 0, path.name))


def _labelled_files(folder: Path, classes: Sequence[str]) -> tuple[list[Path], list[int], list[Path]]:
    """Return the image files of all classes, their labels, and the files of other types."""
    files: list[Path] = []
    labels: list[int] = []
    skipped: list[Path] = []
    for c, name in enumerate(classes):
        images, others = _files_below(folder / name)
        if not images:
            raise UsageError(f"{folder / name} contains no images: add some, or remove the class")
        files += images
        labels += [c] * len(images)
        skipped += others
    return files, labels, skipped


def _warn_of_stray(folders: Iterable[Path]) -> None:
    """Warn about images directly in these folders: they belong to no class."""
    files = (path for f in folders for path in f.iterdir() if path.is_file() and not path.name.startswith("."))
    if stray := sorted(path for path in files if path.suffix.lower() in SUFFIXES):
        message = f"skipped {_count(stray, 'image')} outside the class folders: {_first(stray)}"
        warnings.warn(message, RunWarning, stacklevel=3)


def _files_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return all images below a folder and all other files, sorted by name, without hidden ones."""
    images: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            (images if path.suffix.lower() in SUFFIXES else others).append(path)
    return images, others


def _warn_of_skipped(files: Sequence[Path]) -> None:
    if files:
        kinds = ", ".join(sorted({path.suffix.lower() or "no suffix" for path in files})[:5])
        message = f"skipped {_count(files, 'unsupported file')} ({kinds}): {_first(files)}"
        warnings.warn(message, RunWarning, stacklevel=3)


def _count(files: Sequence[Path], noun: str) -> str:
    return f"1 {noun}" if len(files) == 1 else f"{len(files)} {noun}s"


def _first(files: Sequence[Path]) -> str:
    return f"{files[0]}, …" if len(files) > 1 else str(files[0])
