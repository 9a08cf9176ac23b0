"""Running what a table of the paper still misses, in as many sittings as it takes."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from scommer.analysis import tables
from scommer.errors import RunError
from scommer.experiment import Experiment, prepare
from scommer.record import Record, find
from scommer.running import TimeUp, Watch, run_together
from scommer.streams import Stream


@dataclass(frozen=True)
class Wanted:
    """A run that a table needs."""

    experiment: Experiment
    done: bool
    steps: int


def wanted(table: str, seeds: Iterable[int], results: Path, data: Path | None = None) -> list[Wanted]:
    """All runs of a table: in the paper's order, one seed after the other."""
    records = [Record.load(folder) for folder in find(results)]
    needed = sorted(tables.experiments(table, seeds), key=lambda e: e.seed)
    loaded: dict[tuple[str, float], Stream] = {}
    return [Wanted(e, tables.is_done(e, records), _steps(e, data, loaded)) for e in needed]


def _steps(experiment: Experiment, data: Path | None, loaded: dict[tuple[str, float], Stream]) -> int:
    plan = prepare(experiment, data, loaded)
    t = plan.training
    return sum(t.epochs * t.steps(len(phase)) for phase in plan.stream.phases(plan.method.joint))


def step_ms(results: Path) -> float | None:
    """How long a step of one learner took in the runs that are there, in the middle; None where there are none."""
    times = [Record.load(folder).step_ms for folder in find(results)]
    return statistics.median(times) if times else None


def run_missing(
    todo: Sequence[Wanted],
    results: Path,
    *,
    together: int = 4,
    minutes: float | None = None,
    data: Path | None = None,
    device: str | None = None,
    watch: Watch | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Runs what is missing, so many side by side, until all is done or the time is over; tells how many it finished."""
    end = inf if minutes is None else time.monotonic() + 60 * minutes
    missing = [w.experiment for w in todo if not w.done]
    before = len(find(results))
    for start in range(0, len(missing), together):
        group = missing[start : start + together]
        left = None if end == inf else (end - time.monotonic()) / 60
        if left is not None and left <= 0:
            break
        try:
            run_together(group, out=results, data=data, device=device, watch=watch, minutes=left)
        except TimeUp as e:
            say(str(e))
            break
        except RunError as e:  # the other groups are still worth running
            say(str(e))
    return len(find(results)) - before
