"""The runs that are wanted: which are done, how much is left of the others, and which to run side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scommer.analysis.table import Table, number, number_columns, row, text_columns
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs.experiment import Experiment, Plan
from scommer.runs.record import load_progress
from scommer.runs.settings import written


@dataclass(frozen=True)
class Wanted:
    """A run that is wanted."""

    experiment: Experiment
    done: bool
    steps: int  # 0 if the data to count them is missing
    left: int  # steps to go
    name: str = ""  # of the run and its folder


def wanted_run(plan: Plan, out: Path, done: bool) -> Wanted:
    """Return what is wanted of a run in a folder of runs."""
    steps = sum(plan.steps_by_task)
    return Wanted(plan.experiment, done, steps, 0 if done else steps - _steps_saved(out / plan.name), plan.name)


def _steps_saved(folder: Path) -> int:
    """Return how many steps of an unfinished run are saved."""
    try:
        return load_progress(folder).saved
    except UsageError:  # nothing saved, or damaged
        return 0


def cohorts(todo: Sequence[Wanted], together: int) -> list[list[Wanted]]:
    """Return which missing runs to run side by side: those with about the same number of steps left.

    Started runs come first, then the others in their order, each together with those closest in length.
    """
    waiting = sorted((w for w in todo if not w.done), key=lambda w: w.left == w.steps)
    if together == 1:
        return [[w] for w in waiting]
    made = []
    while waiting:
        n = waiting[0].left
        # Rounded, so that runs of about the same length stay in their order.
        near = sorted(waiting, key=lambda w: round(10 * abs(w.left - n) / max(w.left, n, 1)))
        made.append(near[:together])
        taken = set(map(id, made[-1]))
        waiting = [w for w in waiting if id(w) not in taken]
    return made


def run_table(title: str, todo: Sequence[Wanted]) -> Table:
    """Return a row for each run, with the steps that are left."""
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
    return Table(title, columns, tuple(rows))
