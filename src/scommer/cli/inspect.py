"""The commands that show something: list, show, table, results and bench."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scommer.cli.common import DeviceOption, PrecisionOption, console, numbers_option
from scommer.errors import UsageError, check_name

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from scommer.analysis.table import Table
    from scommer.runs.record import Record

RESULTS = Path("results")


def list_(
    stream: Annotated[str | None, typer.Argument(help="Show all settings for this stream.", show_default=False)] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="Only for this method.")] = None,
    buffer: Annotated[int | None, typer.Option("--buffer", "-b", help="For this buffer.  [default: 200]")] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="official or paper.  [default: official]")] = None,
) -> None:
    """List streams, methods and presets, or all settings for one stream."""
    from inspect import signature

    from scommer.analysis.table import MISSING, Table, as_rich, row, text_columns
    from scommer.methods import METHODS
    from scommer.runs import presets
    from scommer.runs.experiment import fitted_names
    from scommer.runs.settings import as_dict
    from scommer.streams import STREAMS

    if method is not None:
        check_name("method", method, METHODS)
    given = {"--method": method, "--buffer": buffer, "--variant": variant}
    if stream is None and (asked := " ".join(f"{name} {value}" for name, value in given.items() if value is not None)):
        raise UsageError(f"settings depend on the stream: name one, as in `scommer list s-cifar10 {asked}`")
    if stream is not None:
        check_name("stream", stream, STREAMS)
        buffer, variant = 200 if buffer is None else buffer, variant or "official"
        fitted: dict[str, None] = {}  # in order, each once
        for name in [method] if method else METHODS:
            made, training = presets.resolve(stream, name, buffer, variant)
            console.print(_settings(f"{stream}, {name}, buffer {buffer}, {variant}", as_dict(made, training)))
            fitted |= dict.fromkeys(fitted_names(made, training))
        if not presets.has(stream):
            console.print(f"{stream} has no presets: a run fits {', '.join(fitted)} to its images.")
        return
    streams = []
    for name, (source, make) in STREAMS.items():
        tasks = signature(make).parameters.get("tasks")
        source = source if isinstance(source, str) else getattr(source, "__name__", MISSING)
        known = tasks is not None and tasks.default is not tasks.empty
        streams.append(row(name, source, str(tasks.default) if tasks and known else MISSING))
    methods = [row(name, (kind.__doc__ or "").strip().splitlines()[0]) for name, kind in METHODS.items()]
    cells = [row(name, ", ".join(_presets_of(name))) for name in STREAMS]
    for table in (
        Table("Streams", text_columns("stream", "data", "tasks"), tuple(streams)),
        Table("Methods", text_columns("method", "what it does"), tuple(methods)),
        Table("Presets (buffers with separate values)", text_columns("stream", "methods"), tuple(cells)),
    ):
        console.print(as_rich(table))
    console.print("Settings of a cell: scommer list s-cifar10 --method scommer --buffer 200")


def _presets_of(stream: str) -> list[str]:
    """Return the methods with presets for a stream, each with the buffers that have separate values."""
    from scommer.methods import METHODS
    from scommer.runs.presets import buffers

    found = {method: buffers(stream, method) for method in METHODS}
    return [method if b == "any" else f"{method} ({b})" for method, b in found.items() if b != "–"]


def _settings(title: str, settings: dict[str, Any]) -> "RichTable":
    from scommer.analysis.table import Table, as_rich, row, text_columns
    from scommer.runs.settings import written

    rows = tuple(row(name, written(value)) for name, value in settings.items())
    return as_rich(Table(title, text_columns("setting", "value"), rows))


def show(
    run_folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a run, finished or not, or a folder of runs.", show_default=False
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the record of one run as JSON.")] = False,
) -> None:
    """Show a run: its results if it is finished, its progress if not. For several runs, show a line each.

    To show several runs, name a folder of runs, a pattern in quotes, or conditions, as in runs@method=er: see
    `scommer compare --help`.
    """
    from scommer.analysis.summary import all_tables
    from scommer.analysis.table import as_rich
    from scommer.runs.record import Record

    if run_folder.name == "record.json":
        run_folder = run_folder.parent
    if not (run_folder / "record.json").exists() and (run_folder / "progress.json").exists():
        try:
            _show_progress(json.loads((run_folder / "progress.json").read_text()), as_json)
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{run_folder / 'progress.json'} is damaged: run the same command to resume") from None
        return
    if not (run_folder / "record.json").exists() and (listed := _run_list(run_folder)):
        if as_json:
            raise UsageError(f"{run_folder} has several runs: name one for --json")
        console.print(as_rich(listed))
        return
    record = Record.load(run_folder)
    if as_json:
        print((run_folder / "record.json").read_text(), end="")
        return
    for table in all_tables(record):
        console.print(as_rich(table))
    console.print(_settings("Settings", record.settings))
    t, code, precision = record.times, record.code, record.device.precision or "unknown precision"
    others = f" side by side with {t.together - 1} more" if t.together and t.together > 1 else ""
    changed = " (with uncommitted changes)" if code.dirty else ""
    lines = [
        f"stream      {record.stream.name}, fingerprint {record.stream.fingerprint}",
        f"code        {code.commit or 'no commit known'}{changed}, sources {code.sources}",
        f"device      {record.device.name} ({precision}), torch {record.versions['torch']}",
        f"time        {t.seconds:.0f} s for {t.steps:,} steps{others}, finished {t.finished}",
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _run_list(runs: Path) -> "Table | None":
    """Return a table with a line for each of these runs, finished or not; None if there are none."""
    from scommer.analysis.selection import changes, load_records, places, unfinished
    from scommer.analysis.summary import SETTINGS
    from scommer.analysis.table import MISSING, Table, number, number_columns, row, text_columns
    from scommer.runs.record import Record, find

    def name_of(folder: Path) -> str:
        return str(folder.relative_to(runs)) if runs.exists() else folder.name

    here, begun, damaged, records = places(runs), unfinished([runs]), [], []
    for folder in (folder for place in here for folder in find(place)):
        try:
            records.append((name_of(folder), Record.load(folder)))
        except UsageError:
            damaged.append(folder)
    if not here:  # conditions
        records = [(r.name, r) for r in load_records([runs])]
    if not records and not begun and not damaged:
        return None
    rows = []
    for place, r in sorted(records, key=lambda pair: pair[0]):
        scores = r.scores[r.inference]
        ends = [number(scores.get(s, {}).get("accuracy"), ".1f") for s in SETTINGS]
        name = "\n  ".join(filter(None, (place, changes(r))))
        rows.append(row(*ends, number(r.times.seconds / 60, ".1f"), r.times.finished[:10], name))
    for folder in begun:
        try:
            done, total = json.loads((folder / "progress.json").read_text())["steps"]
            state = f"{100 * done / total:.0f} %"
        except (OSError, ValueError, LookupError, TypeError):
            state = "damaged"
        rows.append(row(*[MISSING] * 3, state, name_of(folder)))
    rows += [row(*[MISSING] * 3, "damaged", name_of(folder)) for folder in damaged]
    columns = (*number_columns(*SETTINGS.values(), "minutes"), *text_columns("finished", "run, and what was set"))
    return Table("", columns, tuple(rows), dense=True)


def _show_progress(p: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(p))
        return
    done, total = p["steps"]
    console.print(
        f"{p['name']}: not finished, {100 * done / total:.1f} % ({done:,} of {total:,} steps, {p['saved']:,} saved)",
        soft_wrap=True,
    )
    task, epoch = min(p["task"] + 1, p["tasks"]), min(p["epoch"] + 1, p["epochs"])
    console.print(f"task {task} of {p['tasks']}, epoch {epoch} of {p['epochs']}")
    for memory, row in p["scores"].items():
        if "/" not in memory:
            seen = ", ".join(f"{v:.1f}" for v in (row[: p["task"]] if p["tasks"] > 1 else row))
            console.print(f"{memory}: Class-IL accuracy after task {p['task']}: {seen}")


def table(
    name: Annotated[
        str,
        typer.Argument(help="main, memories, ablation, sensitivity, variants or further.", show_default=False),
    ],
    runs: Annotated[Path, typer.Option("--runs", help="Folder of the runs.")] = RESULTS,
    form: Annotated[str, typer.Option("--as", help="terminal, markdown, csv or latex.")] = "terminal",
    only_done: Annotated[bool, typer.Option("--done", help="Leave out numbers without a run.")] = False,
) -> None:
    """Compare our runs with a table of the paper.

    Ours is the mean ± standard deviation over seeds. A star marks a mean that is more than two standard deviations
    from the paper's: by the paper's deviation, if given, and by ours, if there are several seeds.
    """
    from scommer.analysis.table import as_csv, as_latex, as_markdown, as_rich
    from scommer.paper import tables

    check_name("form", form, ("terminal", "markdown", "csv", "latex"))
    rows = tables.entries(name, _records(runs))
    rows = [e for e in rows if e.ours] if only_done else rows
    if not rows:
        raise UsageError(f"{runs} has no run of this table: name another folder with --runs, or leave out --done")
    if form == "terminal":
        console.print(as_rich(tables.paper_table(name, rows)))
    elif form == "csv":
        print(as_csv(tables.number_table(name, rows)), end="")
    else:
        print((as_markdown if form == "markdown" else as_latex)(tables.paper_table(name, rows)), end="")


def results(
    runs: Annotated[Path, typer.Option("--runs", help="Folder of the runs.")] = RESULTS,
) -> None:
    """Print all results as one Markdown document.

    It has the folder's README.md, the paper's tables as far as there are runs, the choices of batch-norm statistics,
    and every run. For example: `scommer results > docs/results.md`.
    """
    from scommer.paper.documents.results import document

    reading, records = runs / "README.md", _records(runs)
    if not records:
        raise UsageError(f"{runs} holds no finished run: name another folder with --runs")
    print(document(records, reading.read_text() if reading.exists() else "", str(runs)), end="")


def _records(runs: Path) -> "list[Record]":
    """Return the runs of a folder, pattern or condition; none if the default folder has none."""
    from scommer.analysis.selection import load_records
    from scommer.runs.record import find

    return load_records([runs]) if runs != RESULTS or find(runs) else []


def bench(
    method: Annotated[str, typer.Option("--method", "-m", help="Method to time.")] = "scommer",
    network: Annotated[
        str | None, typer.Option("--network", help="resnet18, small or mlp (default: resnet18 on a GPU, else small).")
    ] = None,
    classes: Annotated[int, typer.Option("--classes", min=2, help="10 as in S-CIFAR10, 100 as in S-CIFAR100.")] = 10,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Number of steps to time for each row.")] = 50,
    cohorts: Annotated[
        list[int] | None,
        numbers_option("--cohorts", "Learners side by side; one is always timed.  [default: 1 2 4 8]"),
    ] = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    switches: Annotated[
        bool, typer.Option("--levers", help="On a GPU, also time a step without each of its optimisations.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time a training step on this machine: alone, side by side, and compared with its convolutions alone."""
    from dataclasses import asdict

    from scommer.analysis.table import Table, as_rich, number, number_columns, row, text_columns
    from scommer.bench.timing import COHORTS, bench as measure
    from scommer.device import choose_device, choose_precision
    from scommer.methods import METHODS

    check_name("method", method, METHODS)
    where = choose_device(device)
    chosen_precision = choose_precision(precision, where)
    chosen = network or ("resnet18" if where.type == "cuda" else "small")
    sizes = tuple(cohorts) if cohorts else COHORTS
    if 0 in sizes:
        raise UsageError("--cohorts 0 is invalid: expected 1 or more learners side by side")
    measured = measure(
        method, network=chosen, classes=classes, device=where, precision=chosen_precision,
        steps=steps, cohorts=sizes, switches=switches,
    )  # fmt: skip
    if as_json:
        print(json.dumps(asdict(measured), indent=1))
        return
    title = f"{method}, {chosen}, batch {measured.batch}, {measured.device['name']}, {chosen_precision}"
    rows = []
    for t in measured.timings:
        bases = (measured.bare_ms, measured.floor_ms)  # an MLP has no convolutions
        ratios = [number(t.ms / base if base > 0.01 else None) for base in bases]
        rows.append(
            row(t.what, number(t.ms), *ratios, number(t.images_per_second, ",.0f"), number(t.mib or None, ",.0f"))
        )
    for what, ms in (("networks alone", measured.bare_ms), ("convolutions alone (floor)", measured.floor_ms)):
        rows.append(row(what, number(ms), *[""] * 4))
    columns = (*text_columns("a step"), *number_columns("ms", "× networks", "× floor", "img/s", "MiB"))
    console.print(as_rich(Table(title, columns, tuple(rows))))
    console.print(
        f"first {'captured ' if where.type == 'cuda' else ''}step after {measured.start_s:.1f} s; "
        f"{measured.tested:,} test images scored by {measured.views} memories in {measured.score_s:.2f} s"
    )
