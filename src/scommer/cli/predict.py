"""The command that uses a trained network: predict."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scommer.cli.common import DeviceOption, print_error
from scommer.errors import UsageError, printable
from scommer.files import expand_user

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Model = Callable[[NDArray[np.uint8]], NDArray[Any]]
CHUNK = 1000  # images in memory at once


def predict(
    trained: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A classifier (from `scommer learn` or LifelongClassifier.save), or the folder of a run with weights.",
            show_default=False,
        ),
    ],
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of image files.", show_default=False)],
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="For a run: the memory that predicts (default: the one used for inference)."),
    ] = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per image.")] = False,
) -> None:
    """Predict the class of images: one line per image, with file, class and probability.

    Images are cropped to their centre and scaled to the size of the training images.

    For example:

    - `scommer learn model.safetensors photos --size 32`, then `scommer predict model.safetensors new.jpg more/`
    - `scommer run photos --size 32 --save-weights`, then `scommer predict runs/photos-… new.jpg more/`
    """
    import numpy as np

    from scommer.data.folder import MODES, image_files, is_grey, read_images, warn_of_converted

    files = image_files(expand_user(path) for path in images)
    model, names, (channels, height, width) = _predictor(expand_user(trained), memory, device)
    if channels not in MODES:
        raise UsageError(f"{trained} was trained on images with {channels} channels, which image files do not have")
    bad, grey = 0, []
    for start in range(0, len(files), CHUNK):
        read = []
        for path in files[start : start + CHUNK]:
            try:
                read.append((path, read_images([path], channels, (height, width))))
                grey.append(is_grey(path))
            except UsageError as e:
                bad += 1
                print_error(str(e))
        for (path, _), p in zip(read, model(np.concatenate([x for _, x in read])) if read else [], strict=True):
            best = int(p.argmax())
            found = {"file": str(path), "class": names[best], "probability": round(float(p[best]), 4)}
            print(json.dumps(found) if as_json else "\t".join(_one_line(str(v)) for v in found.values()))
    warn_of_converted(grey, channels)
    if bad:
        raise UsageError(f"{bad} of {len(files)} images could not be read")


def _one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()).replace("\t", " "))


def _predictor(path: Path, memory: str | None, device: str | None) -> "tuple[Model, Sequence[str], tuple[int, ...]]":
    """Return a function from images [N, H, W, C] to probabilities [N, C], the class names, the shape of an image."""
    if path.is_file():
        from scommer.lifelong.classifier import LifelongClassifier

        if memory:
            raise UsageError("--memory is for runs: leave it out for a classifier")
        model = LifelongClassifier.load(path, device=device)
        dtype, shape = model.form_
        _check_images(path, shape)
        ranges = [known for task in model.history_ if (known := task.get("range"))]  # early files do not have it
        _check_scale(path, model.settings_["mean"], model.settings_["std"], ranges, dtype)
        return _scaled(partial(model.predict_proba, layout="NHWC"), dtype), [str(c) for c in model.classes_], shape
    if not path.exists():
        raise UsageError(f"there is no {path}: give a classifier's file, or the folder of a run")
    from scommer.runs.trained import load_trained

    made = load_trained(path, memory, device)
    dtype = made.dtype or "uint8"  # early records do not have it
    _check_images(path, made.image_shape)
    mean, std = (t.flatten().tolist() for t in (made.augment.mean, made.augment.std))
    _check_scale(path, mean, std, [made.range] if made.range else [], dtype)
    return _scaled(lambda x: made.logits(x, "NHWC").softmax(1).numpy(), dtype), made.class_names, made.image_shape


def _scaled(model: "Model", dtype: str) -> "Model":
    """Return the function with pixels as it expects them: as in files, or scaled to 0 … 1."""
    scale = 1 if dtype == "uint8" else 255
    return lambda x: model((x / scale).astype(dtype))


def _check_images(path: Path, shape: Sequence[int]) -> None:
    if shape[1] == 1:
        raise UsageError(f"{path} was trained on rows of features, not on images: use it in Python")


def _check_scale(
    path: Path, mean: Sequence[float], std: Sequence[float], ranges: Sequence[Sequence[float]], dtype: str
) -> None:
    """Refuse a network whose training images did not have the scale of files: 0 … 1, or bytes with 255 for 1.

    If their range is not known, their mean and standard deviation reveal most other scales.
    """
    if ranges:
        scale = 255 if dtype == "uint8" else 1
        least, most = min(r[0] for r in ranges) / scale, max(r[1] for r in ranges) / scale
        alike = least >= -0.05 and 0.25 <= most <= 1.05  # resampling may overshoot a little
    else:
        alike = all(0 <= m <= 1 for m in mean) and max(std) <= 0.51  # in 0 … 1, no deviation is larger than a half
    if not alike:
        raise UsageError(
            f"{path} was trained on images whose scale differs from that of files (0 … 1): use it in Python"
        )
