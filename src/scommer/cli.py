"""The command line: thin. Each command looks things up, calls the package, and prints."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from scommer import __version__
from scommer.errors import ScommerError, UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Neural networks that learn task after task without forgetting.

    Try `scommer demo` first: it learns ten digits two at a time, with and without forgetting, in about a minute.""",
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: where they are, and getting them.")
app.add_typer(data_app, name="data")

console = Console(highlight=False)
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets (default: $SCOMMER_DATA, then the user's cache)."),
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:1 (default: a GPU where there is one).")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder in which each run gets a folder of its own.")]


def main() -> None:
    """Runs a command; what a user can mend is one line on stderr, never a traceback."""
    try:
        app(_spread(sys.argv[1:]))
    except ScommerError as e:
        _complain(str(e))
        sys.exit(e.exit_code)
    except RuntimeError as e:  # torch has no error of its own for it on a CPU
        if not re.search("out of memory|allocate memory", str(e)):
            raise
        _complain("out of memory: a smaller network, batch or buffer needs less, and so do fewer seeds at once")
        sys.exit(1)
    except KeyboardInterrupt:
        _complain("stopped")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)


class Stopped(ScommerError):
    """A run was stopped on request."""

    exit_code = 130


@contextmanager
def _stoppable() -> Iterator[None]:
    """Lets the message of a stopped run through, which the parser would keep to itself."""
    from scommer.running import Interrupted

    try:
        yield
    except Interrupted as e:
        raise Stopped(str(e)) from None


def _complain(message: str) -> None:
    Console(stderr=True, highlight=False).print(f"scommer: {message}", markup=False, soft_wrap=True)


def _spread(arguments: list[str]) -> list[str]:
    """`--seeds 0 1 2` as the `--seeds 0 --seeds 1 --seeds 2` that the parser knows."""
    spread: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        spread.append(word)
        if word == "--seeds" and words:
            numbers = [n for n in words.pop(0).split(",") if n]
            while words and words[0].isdigit():
                numbers.append(words.pop(0))
            spread += [part for n in numbers for part in (n, "--seeds")][:-1]
    return spread


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"scommer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def run(
    stream: Annotated[str, typer.Argument(help="What to learn: see `scommer list`.", show_default=False)],
    method: Annotated[str, typer.Option("--method", "-m", help="How to learn it.")] = "scommer",
    buffer: Annotated[int, typer.Option("--buffer", "-b", help="Examples that episodic memory holds.")] = 200,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", "-s", help="Of the initial weights and all draws; the stream stays the same.  [default: 0]"
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seeds", help="Several seeds side by side: --seeds 0 1 2.", show_default=False),
    ] = None,
    variant: Annotated[
        str, typer.Option("--variant", help="official: as published; paper: the text read literally.")
    ] = "official",
    epochs: Annotated[
        int | None, typer.Option("--epochs", help="Passes over each task (default: the preset's).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Override a hyperparameter; may be repeated. `scommer list s-cifar10` shows them.",
        ),
    ] = None,
    validation: Annotated[
        float,
        typer.Option(
            "--validation",
            help="Hold out this share of the training images and score on it, not on the test images.",
        ),
    ] = 0.0,
    out: OutOption = Path("runs"),
    data: DataOption = None,
    device: DeviceOption = None,
    save_weights: Annotated[
        bool, typer.Option("--save-weights", help="Keep the final weights as weights.safetensors.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, even if this run is finished or half done.")
    ] = False,
    capture: Annotated[
        bool, typer.Option("--capture/--no-capture", help="On a GPU, replay each step as one CUDA graph.")
    ] = True,
    checkpoint_seconds: Annotated[
        float, typer.Option("--checkpoint-seconds", help="At most this long between checkpoints.")
    ] = 60.0,
) -> None:
    """Learn a stream and leave a record.

    The same command takes up a stopped run where it was, and shows a finished one.

    Examples:
    - `scommer run s-digits --method er --buffer 50`

    - `scommer run s-cifar10 --buffer 200 --seed 1 --set r=0.4`

    - `scommer run s-cifar10 --seeds 0 1 2`

    """
    from scommer import presets, running
    from scommer.analysis.summary import matrix_table, summary_table
    from scommer.experiment import Experiment
    from scommer.progress import watch_for

    overrides = dict(presets.parse(s) for s in settings or [])
    if epochs is not None:
        overrides["epochs"] = epochs
    if seeds and seed is not None:
        raise UsageError("give --seed or --seeds, not both")
    wanted = [Experiment(stream, method, buffer, s, variant, validation, overrides) for s in seeds or [seed or 0]]
    failure = None
    try:
        with _stoppable():
            records = running.run_together(
                wanted, out=out, data=data, device=device, watch=watch_for(console),
                checkpoint_seconds=checkpoint_seconds, weights=save_weights, fresh=fresh, capture=capture,
            )  # fmt: skip
    except running.Failed as e:  # those that did not fail are shown
        records, failure = e.records, e
    for record in {r.name: r for r in records}.values():
        console.print(matrix_table(record, record.inference))
        console.print(summary_table(record))
        console.print(f"record: {out / record.name}", soft_wrap=True)
    if failure:
        raise failure


@app.command("list")
def list_(
    stream: Annotated[
        str | None, typer.Argument(help="Show this stream's presets and every setting.", show_default=False)
    ] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="Only this method's.")] = None,
    buffer: Annotated[int, typer.Option("--buffer", "-b", help="Presets for this buffer.")] = 200,
    variant: Annotated[str, typer.Option("--variant", help="official or paper.")] = "official",
) -> None:
    """List streams, methods and presets; with a STREAM, its settings."""
    from scommer import presets
    from scommer.errors import unknown
    from scommer.methods import METHODS
    from scommer.streams import STREAMS

    if method is not None and method not in METHODS:
        raise unknown("method", method, METHODS)
    if stream is not None:
        if stream not in STREAMS:
            raise unknown("stream", stream, STREAMS)
        for name in [method] if method else METHODS:
            made, training = presets.resolve(stream, name, buffer, variant)
            table = Table(
                "setting",
                "value",
                title=f"{stream}, {name}, buffer {buffer}, {variant}",
                title_justify="left",
            )
            for key, value in presets.as_dict(made, training).items():
                table.add_row(key, presets.written(value))
            console.print(table)
        return
    streams = Table("stream", "data", "tasks", title="Streams", title_justify="left")
    for name, (source, make) in STREAMS.items():
        tasks = make.keywords.get("tasks", 20)  # type: ignore[attr-defined]
        streams.add_row(name, source, str(tasks))
    console.print(streams)
    methods = Table("method", "what it does", title="Methods", title_justify="left")
    for name, kind in METHODS.items():
        methods.add_row(name, (kind.__doc__ or "").strip().splitlines()[0])
    console.print(methods)
    cells = Table("stream", *METHODS, title="Presets: buffers with values of their own", title_justify="left")
    for name in STREAMS:
        cells.add_row(name, *(presets.buffers(name, method) for method in METHODS))
    console.print(cells)
    console.print("Settings of a cell: scommer list s-cifar10 --method scommer --buffer 200")


@app.command()
def show(
    run_folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's folder, finished or running.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as it is.")] = False,
) -> None:
    """Show a run: its result when finished, how far it is when not."""
    from scommer.analysis.summary import matrix_table, summary_table
    from scommer.presets import written
    from scommer.record import Record

    if not (run_folder / "record.json").exists() and (run_folder / "progress.json").exists():
        try:
            _show_progress(json.loads((run_folder / "progress.json").read_text()), as_json)
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{run_folder / 'progress.json'} is damaged: run the same command to go on") from None
        return
    record = Record.load(run_folder)
    if as_json:
        print((run_folder / "record.json").read_text(), end="")
        return
    for setting in record.matrices[record.inference]:
        console.print(matrix_table(record, record.inference, setting))
    console.print(summary_table(record))
    settings = Table("setting", "value", title="Settings", title_justify="left")
    for name, value in record.settings.items():
        settings.add_row(name, written(value))
    console.print(settings)
    t, code = record.times, record.code
    changed = " (with uncommitted changes)" if code["dirty"] else ""
    lines = [
        f"stream      {record.stream['name']}, fingerprint {record.stream['fingerprint']}",
        f"code        {code['commit'] or 'no commit known'}{changed}, sources {code['sources']}",
        f"device      {record.device['name']} ({record.device['precision']}), torch {record.versions['torch']}",
        f"time        {t['seconds']:.0f} s for {t['steps']:,} steps, finished {t['finished']}",
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _show_progress(p: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(p))
        return
    done, total = p["steps"]
    console.print(
        f"{p['name']}: not finished, {100 * done / total:.1f} % ({done:,} of {total:,} steps saved)",
        soft_wrap=True,
    )
    console.print(f"task {min(p['task'] + 1, p['tasks'])} of {p['tasks']}, epoch {p['epoch']} of {p['epochs']}")
    for memory, row in p["scores"].items():
        if "/" not in memory:
            seen = ", ".join(f"{v:.1f}" for v in (row[: p["task"]] if p["tasks"] > 1 else row))
            console.print(f"{memory}: Class-IL accuracy after task {p['task']}: {seen}")


@app.command()
def demo(
    out: OutOption = Path("runs/demo"),
    buffer: Annotated[int, typer.Option("--buffer", "-b", help="Examples that episodic memory holds.")] = 30,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Of the initial weights and all draws.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train again, even if it was done before.")] = False,
) -> None:
    """See forgetting and its cure: SCoMMER, ER and plain SGD on ten digits, two at a time."""
    from scommer import running
    from scommer.analysis import heatmap
    from scommer.analysis.summary import matrix_table, side_by_side, summary_table
    from scommer.experiment import Experiment
    from scommer.progress import watch_for

    console.print("Five tasks of two digits each, one after the other; nothing is seen again but what memory keeps.\n")
    records = []
    for method in ("scommer", "sgd", "er"):
        wanted = Experiment("s-digits", method, buffer, seed)
        with _stoppable():
            record = running.run(wanted, out=out, device="cpu", watch=watch_for(console), fresh=fresh)
        records.append(record)
        console.print(f"{method}: {record.times['seconds']:.0f} s")
        if method == "scommer":
            console.print(matrix_table(record, record.inference))
            console.print(summary_table(record))
    console.print(side_by_side(records))
    scommer, sgd, er = records
    panels = [("SGD", sgd, "working"), ("ER", er, "working"),
              ("SCoMMER, working", scommer, "working"), ("SCoMMER, long-term", scommer, "long_term")]  # fmt: skip
    picture = out / "accuracy.png"
    heatmap.save(heatmap.heatmap(panels), picture)
    console.print(f"heatmaps of the accuracy matrices: {picture}", soft_wrap=True)


@app.command()
def table(
    name: Annotated[str, typer.Argument(help="main, memories, ablation or sensitivity.", show_default=False)],
    runs: Annotated[Path, typer.Option("--runs", help="Folder below which the runs lie.")] = Path("results"),
    form: Annotated[str, typer.Option("--as", help="terminal, markdown, csv or latex.")] = "terminal",
    only_done: Annotated[bool, typer.Option("--done", help="Leave out numbers for which there is no run yet.")] = False,
) -> None:
    """Set our runs beside a table of the paper.

    Ours is the mean ± standard deviation over seeds. A star marks a mean further from the paper's than two of its
    standard deviations and, where there are several seeds, than two of our own.
    """
    from scommer.analysis import tables
    from scommer.errors import unknown
    from scommer.record import Record, find

    forms = {"markdown": tables.as_markdown, "csv": tables.as_csv, "latex": tables.as_latex}
    if form not in (*forms, "terminal"):
        raise unknown("form", form, (*forms, "terminal"))
    rows = tables.entries(name, (Record.load(folder) for folder in find(runs)))
    rows = [e for e in rows if e.ours] if only_done else rows
    if form == "terminal":
        console.print(tables.as_table(tables.paper_numbers()[name]["source"], rows))
    else:
        print(forms[form](rows), end="")


@app.command()
def bench(
    method: Annotated[str, typer.Option("--method", "-m", help="Whose step.")] = "scommer",
    network: Annotated[
        str | None, typer.Option("--network", help="resnet18, small or mlp (default: resnet18 on a GPU, else small).")
    ] = None,
    classes: Annotated[int, typer.Option("--classes", help="10 as in S-CIFAR10, 100 as in S-CIFAR100.")] = 10,
    steps: Annotated[int, typer.Option("--steps", help="Steps to time for each row.")] = 50,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON.")] = False,
) -> None:
    """Time a training step here: alone, side by side, and against its bare convolutions."""
    from scommer.bench import bench as measure
    from scommer.errors import unknown
    from scommer.methods import METHODS
    from scommer.running import choose_device

    if method not in METHODS:
        raise unknown("method", method, METHODS)
    where = choose_device(device)
    chosen = network or ("resnet18" if where.type == "cuda" else "small")
    measured = measure(method, network=chosen, classes=classes, device=where, steps=steps)
    if as_json:
        print(json.dumps(measured.as_dict(), indent=1))
        return
    title = f"{method}, {chosen}, batch {measured.batch}, {measured.device['name']}"
    table = Table("step", title=title, title_justify="left")
    for column in ("ms", "× networks", "× floor", "img/s", "MiB"):
        table.add_column(column, justify="right")
    for t in measured.timings:
        bases = (measured.bare_ms, measured.floor_ms)  # an MLP has no convolutions
        ratios = [f"{t.ms / base:.2f}" if base > 0.01 else "–" for base in bases]
        table.add_row(t.what, f"{t.ms:.2f}", *ratios, f"{t.images_per_second:,.0f}", f"{t.mib:,.0f}" if t.mib else "–")
    table.add_section()
    table.add_row("networks alone", f"{measured.bare_ms:.2f}")
    table.add_row("convolutions alone (floor)", f"{measured.floor_ms:.2f}")
    console.print(table)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="cifar10 or cifar100", show_default=False)],
    data: DataOption = None,
) -> None:
    """Download a data set, resuming where a download broke off; checked and unpacked safely."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from scommer.data import data_root
    from scommer.data.fetch import SOURCES, fetch
    from scommer.errors import unknown

    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    bar = Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=console)
    with bar:
        row = bar.add_task(name, total=None)
        folder = fetch(
            SOURCES[name],
            data_root(data),
            progress=lambda done, total: bar.update(row, completed=done, total=total),
        )
    console.print(f"{name}: complete in {folder}", soft_wrap=True)


@data_app.command("where")
def data_where(data: DataOption = None) -> None:
    """Show the data folder and what is in it."""
    from scommer.data import data_root
    from scommer.data.fetch import SOURCES

    root = data_root(data)
    console.print(f"data folder: {root}", soft_wrap=True)
    for name, source in SOURCES.items():
        there = (root / source.folder).is_dir()
        console.print(f"{name}: {'present' if there else f'missing (scommer data get {name})'}")


if __name__ == "__main__":
    main()
