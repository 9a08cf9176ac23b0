"""Group runs that differ only in their seed, and label the groups."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scommer.analysis.measures import array
from scommer.analysis.selection import PRESET, changed, changes, settings_of
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs.record import Record
from scommer.runs.settings import written

FACTS = ("buffer", "variant", "validation")  # of an experiment, besides stream, method and seed
DEFAULTS = {"variant": "official", "validation": 0.0}  # left out of labels


@dataclass(frozen=True)
class Group:
    """Runs of one method with the same settings, one for each seed."""

    label: str
    records: tuple[Record, ...]

    @property
    def method(self) -> str:
        """The method's name in METHODS."""
        return self.records[0].experiment.method

    @property
    def inference(self) -> str:
        """The memory used for inference."""
        return self.records[0].inference

    @property
    def memories(self) -> list[str]:
        """The memories, the one used for inference last; views with other statistics are left out."""
        others = [m for m in self.records[0].matrices if "/" not in m and m != self.inference]
        return [*others, self.inference]

    @property
    def at_once(self) -> bool:
        """Whether all tasks were learned together."""
        return len(self.matrices()[0]) == 1

    def matrices(self, memory: str | None = None) -> np.ndarray:
        """Return R[t, i] of each seed in Class-IL, [S, T, T]."""
        return self._stack("matrix", [r.matrix(memory) for r in self.records])

    def arrays(self, name: str) -> np.ndarray:
        """Return an array of each seed, [S, ...]."""
        return self._stack(name, [array(r, name) for r in self.records])

    def _stack(self, name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
        if len({a.shape for a in arrays}) > 1:
            raise UsageError(f"the runs of {self.label} have different shapes of '{name}': give one of them")
        return np.stack(arrays)


def group_runs(records: Sequence[Record]) -> list[Group]:
    """Group runs of one stream by method and settings, and label each group by its differences.

    Methods are in the order of METHODS; of each, the preset comes first.
    """
    if not records:
        raise UsageError("there are no runs: give at least one")
    streams = sorted({r.stream.name for r in records})
    if len(streams) > 1:
        raise UsageError(
            f"these runs have several streams ({', '.join(streams)}): choose one, as in runs@stream={streams[0]}"
        )
    if any(r.stream.tasks != records[0].stream.tasks for r in records):
        raise UsageError(f"these runs of {streams[0]} have different tasks: give runs with the same order of classes")
    alike: dict[str, list[Record]] = {}
    for r in records:
        facts = {name: value for name, value in vars(r.experiment).items() if name not in ("seed", "given")}
        alike.setdefault(json.dumps([facts, settings_of(r)], sort_keys=True), []).append(r)
    sorted_runs = sorted(alike.values(), key=_order)
    for runs in sorted_runs:
        runs.sort(key=lambda r: r.experiment.seed)
        if len({r.experiment.seed for r in runs}) < len(runs):
            raise UsageError(f"two runs have the same settings and seed, for example {runs[0].name}: give one of them")
    return [Group(label(runs[0], [other[0] for other in sorted_runs]), tuple(runs)) for runs in sorted_runs]


def _order(runs: list[Record]) -> tuple[int, str, int, list[tuple[float, str]]]:
    e = runs[0].experiment
    rank = list(METHODS).index(e.method) if e.method in METHODS else len(METHODS)
    return rank, e.method, e.buffer or 0, _natural_key(changes(runs[0]))


def _natural_key(text: str) -> list[tuple[float, str]]:
    """Return a key that sorts numbers in a text by their size: 5 comes before 10."""
    pieces = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(p), "") if i % 2 else (-1.0, p) for i, p in enumerate(pieces) if p]


def method_label(name: str) -> str:
    """Return a method's label; its name if it has none or is not loaded."""
    return METHODS[name].label or name if name in METHODS else name


def label(record: Record, others: Sequence[Record]) -> str:
    """Return the method's label and what sets the run apart from the others.

    Changes to the preset are named too, unless all of several runs share them.
    """
    e, settings = record.experiment, settings_of(record)
    parts = [method_label(e.method)]
    for fact in FACTS:
        values = {getattr(r.experiment, fact) for r in others} - {None}
        if len(values) > 1 and getattr(e, fact) not in (None, DEFAULTS.get(fact)):
            parts.append(f"{fact} {getattr(e, fact)}")
    same = {fact: getattr(e, fact) for fact in ("method", *FACTS)}
    rivals = [settings_of(r) for r in others if same.items() <= vars(r.experiment).items()]
    differing = [name for name, v in settings.items() if any(rival.get(name) != v for rival in rivals)]
    own_changes = changed(record) if e.method in METHODS else {}
    if len(differing) > 1 and e.method in METHODS:  # settings as in the preset are left out
        if not own_changes:
            return ", ".join([*parts, PRESET])
        differing = [name for name in differing if name in own_changes]
    changes_of_all = [changed(r) for r in others] if len(others) > 1 else [{}]
    for name, value in own_changes.items():
        if name not in differing and any(c.get(name, _ABSENT) != value for c in changes_of_all):
            differing.append(name)
    return ", ".join(parts + [f"{name} {written(settings[name])}" for name in differing])


_ABSENT = object()  # unlike any value of a setting
