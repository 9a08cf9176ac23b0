"""The commands for a classifier in a file: learn, forget and export."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scommer.cli.common import DeviceOption, Stopped, console, print_error
from scommer.errors import UnreadableImage, UsageError, lookup
from scommer.files import expand_user, write_output

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from scommer.lifelong.classifier import LifelongClassifier

ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A classifier file, such as model.safetensors.", show_default=False),
]


def learn(
    model: ModelArgument,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A folder with one folder of images per class.", show_default=False),
    ],
    size: Annotated[
        int | None, typer.Option("--size", help="New classifier: crop and scale all images to this many pixels.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="New classifier: a method from `scommer list`.")
    ] = None,
    buffer: Annotated[
        int | None, typer.Option("--buffer", "-b", help="New classifier: images to remember.  [default: 200]")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", "-s", help="New classifier: seed.  [default: 0]")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="New classifier: a setting; may be repeated."),
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Skip images that cannot be read, and name them.")
    ] = False,
    device: DeviceOption = None,
) -> None:
    """Create a classifier from a folder of class folders, or teach it more.

    Each folder's name is a class; a name that the classifier does not know is a new class. MODEL is written at the
    end, completely or not at all: if you stop the command, MODEL does not change. MODEL contains the remembered
    images.

    For example:

    - `scommer learn model.safetensors january --size 32`, a month later `scommer learn model.safetensors february`
    - `scommer predict model.safetensors new.jpg`
    """
    from scommer.runs.progress import watch_for
    from scommer.runs.settings import parse

    given = {"--size": size, "--method": method, "--buffer": buffer, "--seed": seed, "--set": settings or None}
    with _writing(model, "learned") as path:
        known: dict[str, Any] = {}
        if path.exists():
            if chosen := [name for name, value in given.items() if value is not None]:
                raise UsageError(f"{model} exists, and {chosen[0]} is for a new classifier: leave it out")
            made = _load(path, device)
            known = {str(c): c for c in made.classes_.tolist()}
            channels, *shape = made.form_[1]
            images, names = _read(folder, channels, (shape[0], shape[1]), skip_broken)
        else:
            made = _create(method, buffer, seed, dict(map(parse, settings or [])), device)
            images, names = _read(folder, None, size, skip_broken)
        labels = [known.get(name, name) for name in names]
        made.partial_fit(images, labels, layout="NHWC", watch=watch_for(console))
        made.save(path)
    new = sorted(set(names) - set(known))
    console.print(
        f"{model}: learned {_count(len(names), 'image')} of {_count(len(set(names)), 'class')}"
        + (f", new: {', '.join(new)}" if known and new else "")
        + f"; {_count(len(made.classes_), 'class')} in all",
        soft_wrap=True,
    )


def forget(
    model: ModelArgument,
    names: Annotated[
        list[str],
        typer.Option("--class", metavar="NAME", help="A class to forget; may be repeated.", show_default=False),
    ],
) -> None:
    """Forget classes: remove their remembered inputs from a classifier, and never predict them.

    A forgotten class also loses its part of the last layer, its mean and its counts. If you teach it again, it is
    predicted again. The other weights, which all classes share, do not change: to remove every trace, train a new
    classifier. Copies of MODEL and exported files still contain the class.

    MODEL is written at the end, completely or not at all. A classifier cannot forget its only class: delete MODEL.

    For example:

    - `scommer forget model.safetensors --class cat`
    - `scommer forget model.safetensors --class cat --class "guinea pig"`
    """
    from scommer.lifelong.classifier import LifelongClassifier

    with _writing(model, "forgotten") as path:
        made = LifelongClassifier.load(path, device="cpu")
        known = {str(c): c for c in made.classes_.tolist()}
        before = len(made.remembered_[1])
        made.forget(classes=[lookup("class", name, known) for name in names])
        if not made.history_:
            raise UsageError(f"{model} has learned no other class: name fewer classes, or delete the file")
        made.save(path)
    removed = before - len(made.remembered_[1])
    console.print(
        f"{model}: forgot {', '.join(dict.fromkeys(names))} and {_count(removed, 'remembered input')}; "
        f"{_count(len(made.seen_classes_), 'class')} left",
        soft_wrap=True,
    )


def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("model.onnx"),
) -> None:
    """Write a classifier as an ONNX file: raw rows or images in, probabilities out, any batch size.

    Images have the layout [N, C, H, W] and the same range of values as in training, 0 … 255 or 0 … 1. The metadata
    lists the classes. This needs `pip install 'scommer[onnx]'`.
    """
    from scommer.lifelong.classifier import LifelongClassifier

    write_output(expand_user(output), LifelongClassifier.load(expand_user(model), device="cpu").to_onnx())
    console.print(f"wrote {output}")


@contextmanager
def _writing(model: Path, done: str) -> Iterator[Path]:
    """Hold a classifier file, which may not exist yet, for this process; a second process is refused."""
    from filelock import FileLock, Timeout

    path = expand_user(model)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {path.name}: create it first")
    try:
        with FileLock(f"{path.resolve()}.lock", timeout=0):
            yield path
    except KeyboardInterrupt:
        raise Stopped(f"stopped: nothing was {done}, and {model} is unchanged") from None
    except Timeout:
        raise UsageError(f"{model} is being written by another process: wait until it has finished") from None


def _count(n: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"


def _create(
    method: str | None, buffer: int | None, seed: int | None, settings: dict[str, Any], device: str | None
) -> "LifelongClassifier":
    from scommer.lifelong.classifier import LifelongClassifier

    return LifelongClassifier(
        None, method, 200 if buffer is None else buffer, seed or 0, settings=settings, device=device
    )


def _load(path: Path, device: str | None) -> "LifelongClassifier":
    """Return a classifier that was trained on image files."""
    from scommer.lifelong.classifier import LifelongClassifier

    made = LifelongClassifier.load(path, device=device)
    dtype, (_, height, _) = made.form_
    if dtype != "uint8" or height == 1:
        raise UsageError(f"{path} was not trained on image files (bytes): continue its training in Python")
    return made


def _read(
    folder: Path, channels: int | None, size: int | tuple[int, int] | None, skip_broken: bool
) -> "tuple[NDArray[uint8], Sequence[str]]":
    """Return the images of a folder of class folders, and the class of each."""
    from scommer.data.folder import class_files, is_grey, read_images, warn_of_converted

    files, names = class_files(folder)
    if skip_broken:
        readable = []
        for i, path in enumerate(files):
            try:
                read_images([path], channels, size)
                readable.append(i)
            except UsageError as e:
                print_error(f"skipped: {e}")
        if not readable:
            raise UsageError(f"none of the {len(files)} images in {folder} can be read")
        files, names = [files[i] for i in readable], [names[i] for i in readable]
    try:
        images = read_images(files, channels, size)
    except UnreadableImage as e:
        raise UnreadableImage(f"{e}; --skip-broken leaves out what cannot be read") from e
    warn_of_converted([is_grey(path) for path in files], images.shape[3])
    return images, names
