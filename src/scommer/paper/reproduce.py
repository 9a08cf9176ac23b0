"""Run the experiments missing from a table of the paper; stop and resume as often as needed."""

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from pathlib import Path

from scommer.errors import DataNotFound, RunError, UsageError, check_name
from scommer.methods import METHODS
from scommer.paper import tables
from scommer.runs.experiment import Experiment, prepare
from scommer.runs.options import RunOptions
from scommer.runs.record import find, load_all
from scommer.runs.runner import TimeUp, run_together
from scommer.streams import Stream
from scommer.sweeps.sweep import TOGETHER
from scommer.sweeps.todo import Wanted, cohorts, wanted_run


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
        made.append(wanted_run(plan, results, done))
    return made


def _part(
    needed: list[Experiment], what: str, chosen: Collection[str], value: Callable[[Experiment], str]
) -> list[Experiment]:
    known = {value(e) for e in needed}
    for name in chosen:
        check_name(f"{what} for this part of the table", name, known)
    return [e for e in needed if not chosen or value(e) in chosen]


def _buffer(experiment: Experiment) -> str:
    return str(experiment.buffer) if METHODS[experiment.method].draws else "none"


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


def run_missing(
    todo: Sequence[Wanted],
    results: Path,
    options: RunOptions,
    *,
    together: int | None = None,
    print_line: Callable[[str], None] = print,
) -> int:
    """Run what is missing in this process, until all is done or time is up; return how many runs finished.

    By default, 4 runs are side by side.
    """
    end = inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    before = len(find(results))
    for cohort in cohorts(todo, together or TOGETHER):
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
