"""The commands that train: run and demo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scommer.cli.common import (
    DataOption,
    DeviceOption,
    MinutesOption,
    OutOption,
    PrecisionOption,
    console,
    minutes_left,
    numbers_option,
    stoppable,
)
from scommer.errors import UsageError

if TYPE_CHECKING:
    from scommer.streams import Stream


def run(
    stream: Annotated[
        str,
        typer.Argument(
            help="A stream from `scommer list`, or a folder with one folder of images per class.",
            show_default=False,
        ),
    ],
    method: Annotated[str, typer.Option("--method", "-m", help="A method from `scommer list`.")] = "scommer",
    buffer: Annotated[int, typer.Option("--buffer", "-b", help="Number of examples in episodic memory.")] = 200,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            "-s",
            help="Seed of the initial weights and all random draws, but not of the stream.  [default: 0]",
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None, numbers_option("--seeds", "Several seeds side by side: 0 1 2, 0,1,2 or 0-2.")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            help="official: as published; paper: the text read literally; plus: beyond the paper.  "
            "[default: official; plus for your own images]",
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Epochs per task (default: from the preset).")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Override a setting; may be repeated. `scommer list s-cifar10` shows all settings.",
        ),
    ] = None,
    validation: Annotated[
        float,
        typer.Option(
            "--validation",
            help="Hold out this fraction of the training images, and score on it instead of the test images.",
        ),
    ] = 0.0,
    tasks: Annotated[
        int | None,
        typer.Option("--tasks", help="For a folder of images: number of tasks (default: two classes per task)."),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option("--size", help="For a folder of images: crop them to squares, scaled to this many pixels."),
    ] = None,
    out: OutOption = Path("runs"),
    data: DataOption = None,
    device: DeviceOption = None,
    save_weights: Annotated[
        bool, typer.Option("--save-weights", help="Keep the final weights, in weights.safetensors.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Remove what there is of the run, even if finished, and start over."),
    ] = False,
    precision: PrecisionOption = None,
    no_capture: Annotated[
        bool,
        typer.Option(
            "--no-capture", help="On a GPU, launch kernels one by one instead of each step as one CUDA graph."
        ),
    ] = False,
    minutes: MinutesOption = None,
    log: Annotated[
        str | None, typer.Option("--log", help="Log curves with tensorboard, wandb or mlflow (optional extras).")
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option("--checkpoint-seconds", help="Longest time between checkpoints.")
    ] = 300.0,
) -> None:
    """Learn a stream and write a record.

    The same command resumes a stopped run and shows a finished one.

    For example:

    - `scommer run s-digits --method er --buffer 50`

    - `scommer run s-cifar10 --buffer 200 --seed 1 --set r=0.4`

    - `scommer run s-cifar10 --seeds 0 1 2`

    - `scommer run photos --tasks 5 --size 32 --save-weights`
    """
    from scommer.analysis.summary import seeds_table, short_tables
    from scommer.analysis.table import as_rich
    from scommer.runs import runner
    from scommer.runs.experiment import Experiment
    from scommer.runs.options import RunOptions
    from scommer.runs.progress import watch_for
    from scommer.runs.settings import parse
    from scommer.streams import STREAMS, Stream

    options = RunOptions(
        out=out, data=data, device=device, watch=watch_for(console), checkpoint_seconds=checkpoint_seconds,
        weights=save_weights, fresh=fresh, precision=precision, capture=not no_capture, log=log,
        minutes=minutes_left(minutes),
    )  # fmt: skip
    overrides = dict(parse(s) for s in settings or [])
    if epochs is not None:
        if "epochs" in overrides:
            raise UsageError("give --epochs or --set epochs=…, not both")
        overrides["epochs"] = epochs
    if seeds and seed is not None:
        raise UsageError("give --seed or --seeds, not both")
    learned: str | Stream = stream
    if stream not in STREAMS and ("/" in stream or stream == "~" or Path(stream).is_dir()):
        learned, validation = _folder_stream(Path(stream), tasks, size, validation), 0.0
    elif tasks is not None or size is not None:
        raise UsageError("--tasks and --size are for a folder of images: leave them out for a stream by name")
    wanted = [
        Experiment(learned, method, buffer, s, variant or "", validation, overrides) for s in seeds or [seed or 0]
    ]
    failure = None
    try:
        with stoppable():
            records = runner.run_together(wanted, options)
    except runner.Failed as e:  # the others are shown first
        records, failure = e.records, e
    records = list({r.name: r for r in records}.values())
    for record in records:
        for table in short_tables(record):
            console.print(as_rich(table))
        console.print(f"record: {out / record.name}", soft_wrap=True)
    if len(records) > 1:
        console.print(as_rich(seeds_table(records)))
    if failure:
        raise failure


def _folder_stream(folder: Path, tasks: int | None, size: int | None, validation: float) -> "Stream":
    """Return a folder of images as a stream."""
    from scommer.data import from_folder
    from scommer.streams import STREAMS, class_il

    with console.status("reading images"):
        data = from_folder(folder, size=size)
    name = f"folder-{data.name}" if data.name in STREAMS else data.name
    count = max(1, data.num_classes // 2) if tasks is None else tasks
    return class_il(data, count, validation=validation, name=name)


def demo(
    out: OutOption = Path("runs/demo"),
    buffer: Annotated[int, typer.Option("--buffer", "-b", help="Number of examples in episodic memory.")] = 30,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of the initial weights and all random draws.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over, even if the runs are finished.")] = False,
) -> None:
    """Show forgetting, and how replay prevents it: SGD, ER and SCoMMER learn ten digits, two at a time."""
    from scommer.analysis import figures
    from scommer.analysis.figures.heatmap import heatmaps
    from scommer.analysis.summary import method_table, short_tables
    from scommer.analysis.table import as_rich
    from scommer.runs.experiment import Experiment
    from scommer.runs.progress import watch_for
    from scommer.runs.runner import run_together

    console.print("Five tasks of two digits each, one after another. Earlier images come back only from memory.\n")
    wanted = [Experiment("s-digits", method, buffer, seed) for method in ("scommer", "sgd", "er")]
    with stoppable():
        records = run_together(wanted, out=out, device="cpu", watch=watch_for(console), fresh=fresh)
    scommer, sgd, er = records
    for table in (*short_tables(scommer), method_table(records)):
        console.print(as_rich(table))
    console.print("This is one seed: another may score a few points higher or lower (`--seed 1`).", highlight=False)
    panels = [("SGD", sgd.matrix()), ("ER", er.matrix()),
              ("SCoMMER, working", scommer.matrix("working")), ("SCoMMER, long-term", scommer.matrix())]  # fmt: skip
    picture = out / "accuracy.png"
    figures.save(heatmaps(panels), picture)
    console.print(f"heatmaps of the accuracy matrices: {picture}", soft_wrap=True)
