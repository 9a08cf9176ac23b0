"""The commands for the paper's tables: table, results and reproduce."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scommer.cli.common import (
    DataOption,
    DeviceOption,
    MinutesOption,
    PrecisionOption,
    console,
    minutes_left,
    numbers_option,
    print_error,
    stoppable,
)
from scommer.cli.sweep import (
    AddressOption,
    GpusOption,
    HoursOption,
    PartitionOption,
    ProcessesOption,
    place,
    run_sweep,
)
from scommer.errors import UsageError, check_name, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from scommer.runs.record import Record
    from scommer.sweeps.todo import Wanted

RESULTS = Path("results")
TableArgument = Annotated[
    str,
    typer.Argument(
        help="main, memories, ablation, sensitivity, variants, further, plus or plus-ablation.", show_default=False
    ),
]
RunsOption = Annotated[Path | None, typer.Option("--runs", help="Folder of the runs.  [default: results]")]


def table(
    name: TableArgument,
    runs: RunsOption = None,
    form: Annotated[str, typer.Option("--as", help="terminal, markdown, csv or latex.")] = "terminal",
    only_done: Annotated[bool, typer.Option("--done", help="Leave out numbers without a run.")] = False,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw the differences instead: a .png, .svg or .pdf file.")
    ] = None,
) -> None:
    """Compare our runs with a table of the paper.

    Ours is the mean ± standard deviation over seeds. A star marks a mean that is more than two standard deviations
    from the paper's: by the paper's deviation, if given, and by ours, if there are several seeds. The paper's numbers
    are part of the package. Our own runs are in the folder `results` of its repository.
    """
    from scommer.analysis.figures import check_file, save
    from scommer.analysis.table import as_csv, as_latex, as_markdown, as_rich
    from scommer.paper import table_figure, tables

    check_name("form", form, ("terminal", "markdown", "csv", "latex"))
    if figure is not None:
        check_file(figure)
    records = _records(runs)
    rows = tables.entries(name, records)
    rows = [e for e in rows if e.ours] if only_done else rows
    if not rows:
        raise UsageError(
            f"{runs or RESULTS} has no run of this table: name another folder with --runs, or leave out --done"
        )
    if figure is not None:
        save(table_figure.figure(rows), figure)
        console.print(f"{name}: {figure}", soft_wrap=True)
        return
    if not records:
        print_error(
            f"no runs in {RESULTS}, so these are only the paper's numbers: name your own folder with --runs, "
            "or run this in a clone of the repository, which has ours"
        )
    if form == "terminal":
        console.print(as_rich(tables.paper_table(name, rows)))
    elif form == "csv":
        print(printable(as_csv(tables.number_table(name, rows))), end="")
    else:
        print(printable((as_markdown if form == "markdown" else as_latex)(tables.paper_table(name, rows))), end="")


def results(
    runs: RunsOption = None,
) -> None:
    """Print all results as one Markdown document.

    It has the folder's README.md, the paper's tables as far as there are runs, the choices of batch-norm statistics,
    and every run. For example: `scommer results > docs/results.md`.
    """
    from scommer.paper.documents.results import document

    records, runs = _records(runs), runs or RESULTS
    reading = runs / "README.md"
    if not records:
        raise UsageError(f"{runs} holds no finished run: name another folder with --runs")
    text = reading.read_text("utf-8", "replace") if reading.exists() else ""
    print(printable(document(records, text, str(runs))), end="")


def _records(runs: Path | None) -> "list[Record]":
    """Return the runs of a folder, pattern or condition; by default those in RESULTS, if it has any."""
    from scommer.analysis.selection import load_records
    from scommer.runs.record import find

    return load_records([runs or RESULTS]) if runs or find(RESULTS) else []


def reproduce(
    name: TableArgument,
    seeds: Annotated[list[int] | None, numbers_option("--seeds", "Seeds of each cell.  [default: 0 1 2]")] = None,
    streams: Annotated[list[str] | None, typer.Option("--stream", help="Only this stream; may be repeated.")] = None,
    methods: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only this method; may be repeated.")
    ] = None,
    buffers: Annotated[
        list[int] | None, typer.Option("--buffer", "-b", help="Only this buffer; may be repeated.")
    ] = None,
    results: Annotated[
        Path, typer.Option("--runs", help="Folder of the runs: finished ones count, new ones are added.")
    ] = RESULTS,
    minutes: MinutesOption = None,
    together: Annotated[
        int | None, typer.Option("--together", help="Runs side by side in each process (default: 4; 1 on many cores).")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", help="local, ray or slurm, as in `scommer sweep` (default: one process, on one device)."),
    ] = None,
    processes: ProcessesOption = None,
    address: AddressOption = None,
    gpus: GpusOption = None,
    partition: PartitionOption = None,
    hours: HoursOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the runs, and estimate how long they take.")
    ] = False,
    data: DataOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Run the experiments still missing from a table of the paper.

    Stop and repeat the command as often as you like: it resumes unfinished runs first. Runs with about the same number
    of steps left are run side by side.

    For example:

    - `scommer reproduce main --dry-run`

    - `scommer reproduce main --stream s-cifar10 --method scommer --method er --minutes 25`
    """
    from dataclasses import replace
    from functools import partial

    from scommer.analysis.table import as_rich
    from scommer.paper.reproduce import run_missing, wanted
    from scommer.runs.options import RunOptions
    from scommer.runs.progress import watch_for
    from scommer.sweeps.todo import run_table

    if together is not None and together < 1:
        raise UsageError(f"together = {together} is invalid: expected 1 or more")
    chosen_place = {"processes": processes, "address": address, "gpus": gpus, "partition": partition, "hours": hours}
    if not on and (given := [name for name, value in chosen_place.items() if value is not None]):
        raise UsageError(f"--{given[0]} is for --on local, ray or slurm: give that too")
    options = RunOptions(
        data=data, device=device, precision=precision, minutes=minutes_left(minutes), watch=watch_for(console)
    )
    todo = wanted(
        name, seeds or [0, 1, 2], results, data,
        streams=streams or (), methods=methods or (), buffers=buffers or (), need_data=not dry_run,
    )  # fmt: skip
    missing = [w for w in todo if not w.done]
    if dry_run:
        console.print(as_rich(run_table(f"Runs of table {name}", todo)))
    to_go = _to_go(missing, results, device, precision, measure=dry_run)
    console.print(f"{len(todo) - len(missing)} of {len(todo)} runs are done; {to_go}")
    if dry_run or not missing:
        return
    options = replace(options, minutes=minutes_left(minutes))
    print_line = partial(console.print, markup=False, soft_wrap=True)
    if on:
        failures: dict[str, Exception] = {}
        _, found = run_sweep(
            [w.experiment for w in missing], failures, on=place(on, device, **chosen_place), out=results,
            device=device, data=data, precision=precision, minutes=options.minutes, together=together,
        )  # fmt: skip
        finished = len(found)
        for run, why in failures.items():
            print_line(f"{run} failed: {why}")
    else:
        with stoppable():
            finished = run_missing(todo, results, options, together=together, print_line=print_line)
    console.print(f"{finished} runs finished, {len(missing) - finished} to go")


def _to_go(missing: "list[Wanted]", results: Path, device: str | None, precision: str | None, measure: bool) -> str:
    """Return how many runs and steps are left, and how long they may take on this device, one after the other.

    Without earlier runs on it, `measure` times a few steps; else the time is that on the device of earlier runs.
    """
    from scommer.device import choose_device, device_facts
    from scommer.paper.reproduce import pace
    from scommer.runs.progress import clock
    from scommer.streams import STREAMS

    text = f"{len(missing)} to go"
    if not all(w.steps for w in missing):
        names = dict.fromkeys(str(STREAMS[str(w.experiment.stream)][0]) for w in missing if not w.steps)
        get = " and ".join(f"`scommer data get {name}`" for name in names)
        return f"{text}; download the data to count their steps: {get}"
    left, here = sum(w.left for w in missing), device_facts(choose_device(device))["name"]
    text += f", {left:,} steps"
    found = pace(results, here) if missing else None
    if missing and measure and (found is None or found[1] != here):
        found = _measured(missing, device, precision), here
    if found:
        step_ms, where = found
        seconds = sum(w.left * step_ms(w.experiment.method) for w in missing) / 1000
        text += f", about {clock(seconds)} at {1000 * seconds / max(left, 1):.1f} ms per step on {where}"
    return text


def _measured(missing: "list[Wanted]", device: str | None, precision: str | None) -> "Callable[[str], float]":
    """Return a function from a method to the ms of a step on this device, measured."""
    from scommer.bench.timing import step_ms
    from scommer.device import choose_device, choose_precision
    from scommer.runs.experiment import check

    where = choose_device(device)
    networks = {w.experiment.method: check(w.experiment)[1].network for w in missing}
    measured = {}
    for method, network in networks.items():
        with console.status(f"measuring the speed of {method} on this device"):
            measured[method] = step_ms(method, network, where, choose_precision(precision, where))
    return measured.__getitem__
