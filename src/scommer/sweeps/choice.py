"""Settings by their accuracy over seeds, and the best one of each method."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scommer.analysis.table import Table, number, number_columns, row, spread, text_columns
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs.experiment import Experiment
from scommer.runs.record import Record
from scommer.runs.settings import written
from scommer.sweeps.todo import Wanted

Cell = tuple[str, str, int | None]  # stream, method and buffer: what is compared, not chosen


@dataclass(frozen=True)
class Candidate:
    """The settings of a cell, and their accuracy with each seed that is done."""

    experiment: Experiment  # of any seed
    seeds: int  # that are wanted
    accuracies: tuple[float, ...]

    @property
    def cell(self) -> Cell:
        e = self.experiment
        return str(e.stream), e.method, e.buffer if METHODS[e.method].draws else None

    @property
    def complete(self) -> bool:
        """Whether all seeds are done."""
        return len(self.accuracies) == self.seeds


def candidates(todo: Sequence[Wanted], records: Sequence[Record]) -> list[Candidate]:
    """Return the settings of a sweep, the best of each cell first; those without all of their seeds come last."""
    accuracy = {record.name: record.accuracy() for record in records}
    alike: dict[str, list[Wanted]] = {}
    for w in todo:
        e = w.experiment
        key = [str(e.stream), e.method, e.buffer, e.variant, e.validation, dict(e.settings)]
        alike.setdefault(json.dumps(key, sort_keys=True, default=str), []).append(w)
    found = []
    for group in alike.values():
        done = tuple(accuracy[w.name] for w in group if w.name in accuracy)
        found.append(Candidate(group[0].experiment, len(group), done))
    order = {cell: i for i, cell in enumerate(dict.fromkeys(c.cell for c in found))}
    return sorted(found, key=lambda c: (order[c.cell], not c.complete, -statistics.fmean(c.accuracies or [0.0])))


def chosen(found: Sequence[Candidate]) -> list[Candidate]:
    """Return the best of each cell; a setting with a seed that failed is not chosen."""
    best: dict[Cell, Candidate] = {}
    for c in found:
        if c.complete:
            best.setdefault(c.cell, c)
    if missing := [c.cell for c in found if c.cell not in best]:
        stream, method, _ = missing[0]
        raise UsageError(f"no setting of {method} on {stream} has all of its seeds: nothing can be chosen")
    return list(best.values())


def final_experiments(best: Sequence[Candidate], seeds: Sequence[int]) -> list[Experiment]:
    """Return the experiments that train on all training images and score the test images."""
    return [replace(c.experiment, seed=seed, validation=0.0) for seed in seeds for c in best]


def choice_table(found: Sequence[Candidate], title: str, accuracy: str, choose: bool = True) -> Table:
    """Return a row for each candidate; the best of each cell is bold."""
    rows, seen = [], set[Cell]()
    settings = [{f"{name}={written(value)}": None for name, value in c.experiment.settings.items()} for c in found]
    shared = [s for s in settings[0] if all(s in own for own in settings)] if len(settings) > 1 else []
    for c, own in zip(found, settings, strict=True):
        stream, method, buffer = c.cell
        given = ", ".join(s for s in own if s not in shared) or ("–" if shared else "preset")
        best = choose and c.complete and c.cell not in seen
        seen.add(c.cell)
        done = f"{len(c.accuracies)} of {c.seeds}" if not c.complete else str(c.seeds)
        cells = (stream, method, number(buffer, "d"), given, done, spread(c.accuracies))
        rows.append(row(*cells, strong=best))
    columns = (
        *text_columns("stream", "method"), *number_columns("buffer"), *text_columns("settings"),
        *number_columns("seeds", accuracy),
    )  # fmt: skip
    return Table(title, columns, tuple(rows), (f"All with {', '.join(shared)}.",) if shared else ())
