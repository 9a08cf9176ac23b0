"""The command that uses what was learned: predict."""

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scommer.cli.common import DeviceOption
from scommer.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Answer = Callable[[NDArray[np.uint8]], NDArray[Any]]
CHUNK = 1000  # images in memory at once


def predict(
    trained: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run that kept its weights, or a file of a LifelongClassifier.", show_default=False
        ),
    ],
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.", show_default=False)],
    memory: Annotated[
        str | None, typer.Option("--memory", help="Of a run, which memory answers (default: its own choice).")
    ] = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON, a line for each image.")] = False,
) -> None:
    """Tell the class of images: a line for each, with file, class and probability.

    Images are cropped in the middle and scaled to the size that was learned.

    Such as:

    - `scommer run photos --size 32 --save-weights`, then `scommer predict runs/photos-… new.jpg more/`
    """
    import numpy as np

    from scommer.data.folder import MODES, image_files, read_images

    files = image_files(path.expanduser() for path in images)
    answer, names, (channels, height, width) = _answerer(trained.expanduser(), memory, device)
    if channels not in MODES:
        raise UsageError(f"{trained} has learned images of {channels} channels, which files do not have")
    if height == 1:
        raise UsageError(f"{trained} has learned vectors, not images: ask it in Python")
    bad = 0
    for start in range(0, len(files), CHUNK):
        read = []
        for path in files[start : start + CHUNK]:
            try:
                read.append((path, read_images([path], channels, (height, width))))
            except UsageError as e:
                bad += 1
                print(f"scommer: {e}", file=sys.stderr)
        for (path, _), p in zip(read, answer(np.concatenate([x for _, x in read])) if read else [], strict=True):
            best = int(p.argmax())
            found = {"file": str(path), "class": names[best], "probability": round(float(p[best]), 4)}
            print(json.dumps(found) if as_json else "\t".join(map(str, found.values())))
    if bad:
        raise UsageError(f"{bad} of {len(files)} images could not be read")


def _answerer(path: Path, memory: str | None, device: str | None) -> "tuple[Answer, Sequence[str], tuple[int, ...]]":
    """What gives the probabilities [N, C] of images [N, H, W, C], the classes' names, the shape of an image."""
    if path.is_file():
        from scommer.lifelong.classifier import LifelongClassifier

        if memory:
            raise UsageError("--memory is for runs: a classifier answers with one memory")
        model = LifelongClassifier.load(path, device=device)
        dtype, shape = model.form_
        ranges = [task["range"] for task in model.history_ if "range" in task]  # early files do not tell
        _check_scale(path, model.settings_["mean"], model.settings_["std"], ranges, dtype)
        return _scaled(partial(model.predict_proba, layout="NHWC"), dtype), [str(c) for c in model.classes_], shape
    from scommer.runs.trained import load_trained

    made = load_trained(path, memory, device)
    dtype = made.dtype or "uint8"  # early records do not tell
    mean, std = (t.flatten().tolist() for t in (made.augment.mean, made.augment.std))
    _check_scale(path, mean, std, [made.range] if made.range else [], dtype)
    return _scaled(lambda x: made.logits(x, "NHWC").softmax(1).numpy(), dtype), made.class_names, made.image_shape


def _scaled(answer: "Answer", dtype: str) -> "Answer":
    """Asks with pixels of files as they were learned: as they are, or in 0 … 1."""
    scale = 1 if dtype == "uint8" else 255
    return lambda x: answer((x / scale).astype(dtype))


def _check_scale(
    path: Path, mean: Sequence[float], std: Sequence[float], ranges: Sequence[Sequence[float]], dtype: str
) -> None:
    """Files hold pixels in 0 … 1, or bytes with 255 for 1: what was learned must have been so, too.

    Where it is not known which values were learned, mean and deviation tell of most other scales.
    """
    if ranges:
        scale = 255 if dtype == "uint8" else 1
        least, most = min(r[0] for r in ranges) / scale, max(r[1] for r in ranges) / scale
        alike = least >= -0.05 and 0.25 <= most <= 1.05  # resampling may go a little beyond
    else:
        alike = all(0 <= m <= 1 for m in mean) and max(std) <= 0.51  # in 0 … 1 none deviate by more than a half
    if not alike:
        raise UsageError(f"{path} has learned images of another scale than files have (0 … 1): ask it in Python")
