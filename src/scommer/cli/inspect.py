"""The commands that show what there is and what was run: list and show."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scommer.cli.common import console
from scommer.errors import UsageError, check_name, printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from scommer.analysis.table import Table
    from scommer.runs.facts import Progress
    from scommer.runs.record import Record


def list_(
    stream: Annotated[str | None, typer.Argument(help="Show all settings for this stream.", show_default=False)] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="Only for this method.")] = None,
    buffer: Annotated[int | None, typer.Option("--buffer", "-b", help="For this buffer.  [default: 200]")] = None,
    variant: Annotated[
        str | None,
        typer.Option("--variant", help="official, paper or plus.  [default: official; plus without presets]"),
    ] = None,
) -> None:
    """List streams, methods and presets, or all settings for one stream."""
    from inspect import signature

    from scommer.analysis.table import MISSING, Table, as_rich, row, text_columns
    from scommer.methods import METHODS
    from scommer.methods.training import Training
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
        buffer, variant = 200 if buffer is None else buffer, variant or presets.usual_variant(stream)
        names = [method] if method else list(METHODS)
        resolved = {name: presets.resolve(stream, name, buffer, variant) for name in names}
        values = {name: as_dict(*found) for name, found in resolved.items()}
        first = values[names[0]]
        shared = {k: v for k, v in first.items() if all(k in other and other[k] == v for other in values.values())}
        title = f"{stream}, {method or 'all methods'}, buffer {buffer}, {variant}"
        console.print(_settings(title, shared, Training, *(type(made) for made, _ in resolved.values())))
        for name, (made, _) in resolved.items():
            own = {k: v for k, v in values[name].items() if k not in shared}
            if own:
                console.print()
                console.print(_settings(f"{stream}, {name}", own, Training, type(made)))
        fitted = dict.fromkeys(n for found in resolved.values() for n in fitted_names(*found))  # in order, each once
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
    return [f"{m} ({', '.join(map(str, b))})" if b else m for m, b in found.items() if b is not None]


def _settings(title: str, settings: dict[str, Any], *kinds: type) -> "RichTable":
    """Return the settings and their values and, given the dataclasses that they belong to, their meanings."""
    from scommer.analysis.table import Table, as_rich, row, text_columns
    from scommer.runs.meanings import meanings
    from scommer.runs.settings import written

    known = meanings(*kinds)
    rows = tuple(row(name, written(value), *known.get(name, ("", ""))) for name, value in settings.items())
    table = Table(title, text_columns("setting", "value", "symbol", "meaning"), rows, dense=bool(kinds))
    unused = {"symbol": 2, "meaning": 3}
    return as_rich(table.without(*(name for name, i in unused.items() if not any(r.cells[i].text for r in rows))))


def show(
    run_folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Folder of a run, finished or not; a folder of runs; or a classifier's file.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the record of one run, a row for each of several, or the file, as JSON."),
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a row for each finished run, with its settings and scores, as CSV.")
    ] = False,
) -> None:
    """Show a run: its results if it is finished, its progress if not. For several runs, show one line each.

    Of a file that `scommer learn` wrote, show what the classifier has learned.

    To show several runs, name a folder of runs, a quoted pattern, or conditions, as in runs@method=er: see
    `scommer compare --help`. `--csv` and `--json` give their settings and scores to other programs.
    """
    from scommer.analysis import rows
    from scommer.analysis.selection import load_records, places, unfinished, without_conditions
    from scommer.analysis.summary import all_tables
    from scommer.analysis.table import as_rich
    from scommer.runs.facts import to_json
    from scommer.runs.record import Record, load_progress

    if as_csv and as_json:
        raise UsageError("give --csv or --json, not both")
    if as_csv and run_folder.is_file() and run_folder.name != "record.json":
        raise UsageError("--csv is for runs: a classifier's file has --json")
    if as_csv:
        print(printable(rows.as_csv(rows.rows_of(load_records(run_folder)))), end="")
        return
    if run_folder.name == "record.json":
        run_folder = run_folder.parent
    if run_folder.is_file():
        _show_classifier(run_folder, as_json)
        return
    if not (run_folder / "record.json").exists() and (run_folder / "progress.json").exists():
        _show_progress(load_progress(run_folder), as_json)
        return
    if not (run_folder / "record.json").exists() and (listed := _run_list(run_folder)):
        if as_json:
            print(json.dumps(rows.rows_of(load_records(run_folder)), indent=1))
            return
        console.print(as_rich(listed))
        if not places(run_folder) and (hidden := len(unfinished([without_conditions(run_folder)]))):
            runs = "one unfinished run is" if hidden == 1 else f"{hidden} unfinished runs are"
            console.print(f"{runs} not shown: conditions select finished ones")
        return
    record = Record.load(run_folder)
    if as_json:
        print(json.dumps(to_json(record, skip="arrays"), indent=1))
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
        f"device      {record.device.name} ({precision}), torch {record.versions.get('torch', 'unknown')}",
        f"time        {t.seconds:.0f} s for {t.steps:,} steps{others}, finished {t.finished}",
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _show_classifier(path: Path, as_json: bool) -> None:
    from collections import Counter

    from scommer.lifelong.classifier import LifelongClassifier

    model = LifelongClassifier.load(path, device="cpu")
    dtype, (channels, height, width) = model.form_
    is_row = channels == height == 1
    held = Counter(model.remembered_[1].tolist())
    newest = model.history_[-1] if model.history_ else {}
    if as_json:
        about = {
            "method": model.method_, "settings": model.settings_, "dtype": dtype, "shape": model.form_[1],
            "tasks": model.n_tasks_, "classes": model.seen_classes_.tolist(),
            "remembered": {str(label): n for label, n in held.items()}, "newest": newest,
        }  # fmt: skip
        print(json.dumps(about))
        return
    form = f"rows of {width} features" if is_row else f"{channels} × {height} × {width} images"
    names = [f"{label} ({held[label]})" if held else str(label) for label in model.seen_classes_.tolist()]
    lines = [
        f"method      {model.method_}",
        f"learns      {form}, {dtype}",
        f"learned     {model.n_tasks_} {'task' if model.n_tasks_ == 1 else 'tasks'}"
        + (f", the last one on {newest['finished'][:10]}" if newest else ""),
        f"classes     {', '.join(names)}" + (" (remembered inputs in parentheses)" if held else ""),
    ]
    console.print("\n".join(lines), soft_wrap=True)
    console.print(_settings("Settings", model.settings_))


def _run_list(runs: Path) -> "Table | None":
    """Return a table with a line for each of these runs, finished or not; None if there are none."""
    from scommer.analysis.selection import changes, places, unfinished
    from scommer.analysis.summary import SETTINGS
    from scommer.analysis.table import MISSING, Table, number, number_columns, row, text_columns
    from scommer.runs.record import Record, find, load_progress

    def name_of(folder: Path) -> str:
        return str(folder.relative_to(runs)) if runs.exists() else folder.name

    here, begun, damaged, records = places(runs), unfinished([runs]), [], []
    for folder in (folder for place in here for folder in find(place)):
        try:
            records.append((name_of(folder), Record.load(folder)))
        except UsageError:
            damaged.append(folder)
    if not here:  # conditions
        records = [(r.name, r) for r in _meeting_conditions(runs)]
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
            progress = load_progress(folder)
            done, total = progress.steps
            state = f"{'failed, ' if progress.failure else ''}{100 * done / total:.0f} %"
        except UsageError:
            state = "damaged"
        rows.append(row(*[MISSING] * 3, state, name_of(folder)))
    rows += [row(*[MISSING] * 3, "damaged", name_of(folder)) for folder in damaged]
    columns = (*number_columns(*SETTINGS.values(), "minutes"), *text_columns("finished", "run, and what was set"))
    return Table("", columns, tuple(rows), dense=True)


def _meeting_conditions(runs: Path) -> "list[Record]":
    from scommer.analysis.selection import load_records, unfinished, without_conditions

    try:
        return load_records([runs])
    except UsageError as e:
        if hidden := len(unfinished([without_conditions(runs)])):
            raise UsageError(
                f"{e}; {hidden} unfinished {'run is' if hidden == 1 else 'runs are'} not looked at"
            ) from None
        raise


def _show_progress(p: "Progress", as_json: bool) -> None:
    from scommer.runs.facts import to_json

    if as_json:
        print(json.dumps(to_json(p)))
        return
    done, total = p.steps
    state = "failed" if p.failure else "not finished"
    console.print(
        f"{p.name}: {state}, {100 * done / total:.1f} % ({done:,} of {total:,} steps, {p.saved:,} saved)",
        soft_wrap=True,
    )
    if p.failure:
        console.print(printable(p.failure), markup=False, highlight=False, soft_wrap=True)
    task, epoch = min(p.task + 1, p.tasks), min(p.epoch + 1, p.epochs)
    console.print(f"task {task} of {p.tasks}, epoch {epoch} of {p.epochs}")
    for memory, row in p.scores.items():
        if "/" not in memory:
            seen = ", ".join(f"{v:.1f}" for v in (row[: p.task] if p.tasks > 1 else row))
            console.print(f"{memory}: Class-IL accuracy after task {p.task}: {seen}")
