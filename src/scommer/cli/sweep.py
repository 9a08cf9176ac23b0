"""The command for many runs: sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scommer.cli.common import (
    DataOption,
    DeviceOption,
    MinutesOption,
    PrecisionOption,
    console,
    minutes_left,
    names_option,
    numbers_option,
    print_error,
    stoppable,
)
from scommer.errors import UsageError, check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scommer.runs.experiment import Experiment
    from scommer.runs.record import Record
    from scommer.sweeps.choice import Candidate
    from scommer.sweeps.grid import Grid
    from scommer.sweeps.places import Executor
    from scommer.sweeps.todo import Wanted

OnOption = Annotated[
    str,
    typer.Option(
        "--on",
        help="local: every GPU, or else every core, of this machine; ray or slurm: a cluster that shares the folders.",
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", help="For local: number of processes (default: one for each GPU, or else core)."),
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="For ray: address of a cluster (default: a running one, or a new one).")
]
GpusOption = Annotated[
    float | None,
    typer.Option("--gpus", help="For ray and slurm: GPUs of each job; for ray also a share, as in 0.5 (default: 1)."),
]
PartitionOption = Annotated[str | None, typer.Option("--partition", help="For slurm: partition of the jobs.")]
HoursOption = Annotated[
    float | None,
    typer.Option("--hours", help="For slurm: time limit of a job, at which it is saved and requeued (default: 4)."),
]


def place(on: str, device: str | None, **options: Any) -> "Executor":
    """Return where to run, with the options that were given."""
    from scommer.sweeps.places import executor

    return executor(on, device=device, **{name: value for name, value in options.items() if value is not None})


def sweep(
    streams: Annotated[
        list[str],
        typer.Argument(metavar="STREAM...", help="Streams from `scommer list`, or a TOML file.", show_default=False),
    ],
    methods: Annotated[list[str] | None, names_option("--method", "Methods.  [default: scommer]", "-m")] = None,
    buffers: Annotated[list[int] | None, numbers_option("--buffer", "Buffers.  [default: 200]", "-b")] = None,
    seeds: Annotated[list[int] | None, numbers_option("--seeds", "Seeds of each setting.  [default: 0]")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE,...",
            help="Values of a setting, for the methods that have it; METHOD.NAME for one of them. May be repeated.",
        ),
    ] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="official, paper or plus.")] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            "--validation",
            help="Hold out this fraction of the training images, and compare settings on it, not on the test images.",
        ),
    ] = None,
    final: Annotated[
        bool,
        typer.Option(
            "--final",
            help="With --validation: then train the best setting of each method on all seeds, score the test images, "
            "and keep these runs in OUT/final.",
        ),
    ] = False,
    search: Annotated[
        str | None, typer.Option("--search", help="optuna: search the ranges in the file, instead of a grid.")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="For --search: number of trials.")] = None,
    on: OnOption = "local",
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the runs, created if it is missing; each run has a folder in it.")
    ] = Path("sweeps"),
    together: Annotated[
        int | None,
        typer.Option("--together", help="Runs side by side in each process (default: 4 on a GPU, 1 on a CPU)."),
    ] = None,
    processes: ProcessesOption = None,
    address: AddressOption = None,
    gpus: GpusOption = None,
    partition: PartitionOption = None,
    hours: HoursOption = None,
    minutes: MinutesOption = None,
    save_weights: Annotated[
        bool, typer.Option("--save-weights", help="Keep the final weights, in weights.safetensors.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
    data: DataOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Run all combinations of streams, methods, buffers, settings and seeds.

    Each run is the one that `scommer run` would make, with the same name, folder, record and checkpoints. The same
    command continues: finished runs are not repeated, and failed ones are tried again. Several commands with one
    folder, also on several machines, share the work. `scommer show`, `compare`, `figure` and `report` take the folder.

    For example:

    - `scommer sweep s-digits --method scommer er --buffer 50 100 --set lr=0.03,0.1 --set r=0.1,0.5 --seeds 0-4`

    - `scommer sweep s-cifar10 --set lr=0.03,0.1 --seeds 0-2 --validation 0.1 --final --out sweeps/lr`

    - `scommer sweep sweep.toml --on ray`

    A file may have stream, method, buffer, seeds, variant and validation, and tables; lists have several values:

    ```
    stream = "s-digits"
    method = ["scommer", "er"]
    seeds = "0-4"
    validation = 0.1
    [set]
    lr = [0.03, 0.1]
    [set.scommer]
    r = [0.1, 0.5]
    ```

    To search instead, give ranges for `--search optuna --trials 50`:

    ```
    [search]
    lr = {low = 0.01, high = 0.3, log = true}
    [search.scommer]
    statistics = ["replay", "working"]
    ```
    """
    from scommer.analysis.table import as_rich
    from scommer.sweeps.choice import candidates, choice_table, chosen, final_experiments

    grid = _grid(
        streams,
        methods=methods, buffers=buffers, seeds=seeds, settings=settings, variant=variant, validation=validation,
    )  # fmt: skip
    if final and not grid.validation:
        raise UsageError("--final chooses by validation accuracy: give --validation, for example 0.1")
    if (search is None) != (trials is None):
        raise UsageError("give --search optuna and --trials together")
    if grid.search and search is None:
        raise UsageError("the table [search] needs --search optuna and --trials, for example --trials 50")
    if search is not None and dry_run:
        raise UsageError("--dry-run is for a grid: a search chooses its runs while it goes on")
    options = {"data": data, "precision": precision, "weights": save_weights, "together": together}
    chosen_place = {"processes": processes, "address": address, "gpus": gpus, "partition": partition, "hours": hours}

    failures: dict[str, Exception] = {}

    def run(experiments: "list[Experiment]", out: Path) -> "list[Candidate]":
        where = place(on, device, **chosen_place)
        limit = minutes_left(minutes)
        return candidates(*run_sweep(experiments, failures, on=where, out=out, device=device, minutes=limit, **options))

    if search is not None:
        check_name("search", search, ("optuna",))
        limits = {"device": device, "minutes": minutes_left(minutes)}
        where = place(on, device, **chosen_place)
        found = candidates(*_search(grid, trials or 0, out, where, failures, options | limits))
    elif dry_run:
        _list(grid.experiments(), out, data)
        return
    else:
        found = run(grid.experiments(), out)
    title, accuracy = ("Validation", "validation (%)") if grid.validation else ("Results", "Class-IL (%)")
    console.print(as_rich(choice_table(found, title, accuracy, bool(grid.validation))))
    if final:
        found = run(final_experiments(chosen(found), grid.seeds), out / "final")
        console.print(as_rich(choice_table(found, "Test", "Class-IL (%)", False)))
    elif grid.validation:
        console.print("The best of each method is bold: give --final to train it and score the test images.")
    console.print(f"runs: {out}", soft_wrap=True)
    for name, why in failures.items():
        print_error(f"{name} failed: {why}")
    if failures:
        raise typer.Exit(1)


def _grid(streams: list[str], *, settings: list[str] | None, **given: Any) -> "Grid":
    """Return the grid of a file or of the command line; what the command line gives wins."""
    from scommer.sweeps.grid import Grid, parse_setting, read_grid

    fields: dict[str, Any] = {"streams": tuple(streams)}
    if any(name.endswith(".toml") for name in streams):
        if len(streams) > 1:
            raise UsageError("give one TOML file, or streams by name: a file names its streams itself")
        fields = read_grid(Path(streams[0]))
    fields |= {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if v not in (None, [])}
    chosen = dict(parse_setting(s) for s in settings or [])
    if len(chosen) < len(settings or []):
        raise UsageError("a setting is given twice: write all of its values in one --set, as in lr=0.03,0.1")
    return Grid(**{**fields, "settings": {**fields.get("settings", {}), **chosen}})


def run_sweep(
    experiments: "list[Experiment]", failures: dict[str, Exception], **options: Any
) -> "tuple[Sequence[Wanted], list[Record]]":
    """Run experiments, and note which fail; return all runs, and the records of those that are done."""
    from scommer.runs.runner import Failed
    from scommer.sweeps.status import sweep_watch_for
    from scommer.sweeps.sweep import sweep

    records: list[Record] = []
    watch = sweep_watch_for(console)
    try:
        with stoppable():
            for record in sweep(experiments, watch=watch, **options):
                records.append(record)
    except Failed as e:
        failures |= e.failures
    return watch.todo, records


def _search(
    grid: "Grid", trials: int, out: Path, where: "Executor", failures: dict[str, Exception], options: dict[str, Any]
) -> "tuple[Sequence[Wanted], list[Record]]":
    """Search with Optuna; return the runs of all trials that were not stopped early, and their records."""
    from scommer.data import data_root
    from scommer.sweeps.search import Search
    from scommer.sweeps.status import sweep_watch_for

    kept = {name: options[name] for name in ("precision", "device", "weights")}
    found = Search(grid, trials, out.absolute(), {**kept, "out": out.absolute(), "data": data_root(options["data"])})
    with stoppable():
        found.run(where, sweep_watch_for(console), options["minutes"])
    failures |= found.failures
    done = list(found.records.values())
    return [w for w in found.todo.values() if w.name in found.records], done


def _list(experiments: "list[Experiment]", out: Path, data: Path | None) -> None:
    """List the runs of a sweep."""
    from scommer.analysis.table import as_rich
    from scommer.sweeps.sweep import wanted
    from scommer.sweeps.todo import run_table

    todo = wanted(experiments, out, data)
    console.print(as_rich(run_table(f"Runs in {out}", todo)))
    done = sum(w.done for w in todo)
    console.print(f"{done} of {len(todo)} runs are done; {sum(w.left for w in todo):,} steps to go")
