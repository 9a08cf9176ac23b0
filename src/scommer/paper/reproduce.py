"""Run the experiments missing from a table of the paper; stop and resume as often as needed."""

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from scommer.analysis.table import Table, number, number_columns, row, text_columns
from scommer.errors import DataNotFound, RunError, UsageError, check_name
from scommer.methods import METHODS
from scommer.paper import tables
from scommer.runs.experiment import Experiment, prepare
from scommer.runs.options import RunOptions
from scommer.runs.record import find, load_all, load_progress
from scommer.runs.runner import TimeUp, run_together
from scommer.runs.settings import written
from scommer.streams import Stream


@dataclass(frozen=True)
class Wanted:
    """A run that a table needs."""

    experiment: Experiment
    done: bool
    steps: int  # 0 if the data to count them is missing
    left: int  # steps to go


def wanted(
    table: str,
    seeds: Iterable[int],
    results: Path,
    data: Path | None = None,
    *,
    streams: Collection[str] = (),
    methods: Collection[str] = (),
    buffers: Collection[int] = (),
    need_data: bool = True,
) -> list[Wanted]:
    """Return the runs of a table, or of its part with these streams, methods and buffers.

    They are in the paper's order, one seed after another. Without data, their steps are unknown.
    """
    needed = sorted(tables.experiments(table, seeds), key=lambda e: e.seed)
    needed = _part(needed, "stream", streams, lambda e: str(e.stream))
    needed = _part(needed, "method", methods, lambda e: e.method)
    if buffers and not any(METHODS[e.method].draws for e in needed):
        raise UsageError(f"{' and '.join(methods)} {'have' if len(methods) > 1 else 'has'} no buffer: omit --buffer")
    needed = _part(needed, "buffer", [str(b) for b in buffers], _buffer)
    records = list(load_all(find(results)).values())
    loaded: dict[tuple[str, float], Stream] = {}
    made = []
    for e in needed:
        done = tables.is_done(e, records)
        try:
            plan = prepare(e, data, loaded)
        except DataNotFound:
            if need_data:
                raise
            made.append(Wanted(e, done, 0, 0))
            continue
        t = plan.training
        steps = sum(t.passes(len(phase)) * t.steps(len(phase)) for phase in plan.stream.phases(plan.method.joint))
        made.append(Wanted(e, done, steps, 0 if done else steps - _steps_saved(results / plan.name)))
    return made


def run_table(name: str, todo: Sequence[Wanted]) -> Table:
    """Return a row for each run of a table, with the steps that are left."""
    rows = []
    for w in todo:
        e = w.experiment
        variant = {} if e.variant == "official" else {"variant": e.variant}
        changes = ", ".join(f"{k}={written(v)}" for k, v in {**variant, **e.settings}.items())
        buffer = number(e.buffer if METHODS[e.method].draws else None, "d")
        state = "done" if w.done else f"{w.left:,} to go" if w.left < w.steps else ""
        rows.append(
            row(str(e.stream), e.method, buffer, number(e.seed, "d"), changes, number(w.steps or None, ",d"), state)
        )
    columns = (
        *text_columns("stream", "method"), *number_columns("buffer", "seed"),
        *text_columns("changes"), *number_columns("steps"), *text_columns(""),
    )  # fmt: skip
    return Table(f"Runs of table {name}", columns, tuple(rows))


def _part(
    needed: list[Experiment], what: str, chosen: Collection[str], value: Callable[[Experiment], str]
) -> list[Experiment]:
    known = {value(e) for e in needed}
    for name in chosen:
        check_name(f"{what} for this part of the table", name, known)
    return [e for e in needed if not chosen or value(e) in chosen]


def _buffer(experiment: Experiment) -> str:
    return str(experiment.buffer) if METHODS[experiment.method].draws else "none"


def _steps_saved(folder: Path) -> int:
    """Return how many steps of an unfinished run are saved."""
    try:
        return load_progress(folder).saved
    except UsageError:  # nothing saved, or damaged
        return 0


def pace(results: Path, here: str) -> tuple[Callable[[str], float], str] | None:
    """Return a function from a method to the median ms of its learner's step, and the device of these runs.

    The device is the one named `here` or, if it has no runs, the one with most; None without any runs. A method without
    runs has the median of all.
    """
    times: dict[str, list[tuple[str, float]]] = {}
    for record in load_all(find(results)).values():
        times.setdefault(record.device.name, []).append((record.experiment.method, record.step_ms))
    if not times:
        return None
    device = here if here in times else max(times, key=lambda name: len(times[name]))

    def step_ms(method: str) -> float:
        own = [ms for name, ms in times[device] if name == method]
        return statistics.median(own or [ms for _, ms in times[device]])

    return step_ms, device


def cohorts(todo: Sequence[Wanted], together: int) -> list[list[Wanted]]:
    """Return which missing runs to run side by side: those with about the same number of steps left.

    Started runs come first, then the others in their order, each together with those closest in length.
    """
    waiting = sorted((w for w in todo if not w.done), key=lambda w: w.left == w.steps)
    made = []
    while waiting:
        n = waiting[0].left
        # Rounded, so that runs of about the same length stay in their order.
        near = sorted(waiting, key=lambda w: round(10 * abs(w.left - n) / max(w.left, n, 1)))
        made.append(near[:together])
        waiting = [w for w in waiting if w not in made[-1]]
    return made


def run_missing(
    todo: Sequence[Wanted],
    results: Path,
    options: RunOptions,
    *,
    together: int = 4,
    print_line: Callable[[str], None] = print,
) -> int:
    """Run what is missing, `together` at a time, until all is done or time is up; return how many runs finished."""
    end = inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    before = len(find(results))
    for cohort in cohorts(todo, together):
        left = None if end == inf else (end - time.monotonic()) / 60
        if left is not None and left <= 0:
            break
        try:
            run_together([w.experiment for w in cohort], options, out=results, minutes=left)
        except TimeUp as e:
            print_line(str(e))
            break
        except RunError as e:  # the other cohorts can still run
            print_line(str(e))
    return len(find(results)) - before
