"""Runs that differ only in their seed belong together: grouped and named."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scommer.analysis.measures import array
from scommer.analysis.selection import PRESET, changed, changes
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs.record import Record
from scommer.runs.settings import written

FACTS = ("buffer", "variant", "validation")  # of an experiment, beside stream, method and seed
USUAL = {"variant": "official", "validation": 0.0}  # go without saying


@dataclass(frozen=True)
class Group:
    """Runs of one method with one set of settings, one a seed or more."""

    label: str
    records: tuple[Record, ...]

    @property
    def method(self) -> str:
        """Its name in METHODS."""
        return self.records[0].experiment.method

    @property
    def inference(self) -> str:
        """The memory that answers."""
        return self.records[0].inference

    @property
    def memories(self) -> list[str]:
        """Memories of its own, the one that answers last; not the same one with other statistics."""
        own = [m for m in self.records[0].matrices if "/" not in m and m != self.inference]
        return [*own, self.inference]

    @property
    def at_once(self) -> bool:
        """Whether all tasks were learned together."""
        return len(self.matrices()[0]) == 1

    def matrices(self, memory: str | None = None) -> np.ndarray:
        """[S, T, T] R[t, i] of each seed, in Class-IL."""
        return np.stack([r.matrix(memory) for r in self.records])

    def arrays(self, name: str) -> np.ndarray:
        """[S, ...] an array of each seed."""
        return np.stack([array(r, name) for r in self.records])


def method_label(name: str) -> str:
    """Return a method's label, its name where it has none or is not known here."""
    return METHODS[name].label or name if name in METHODS else name


def groups(records: Sequence[Record]) -> list[Group]:
    """Runs of one stream by method and settings, under names that tell them apart.

    Methods are in the order of METHODS, and of each the preset comes first.
    """
    if not records:
        raise UsageError("there are no runs to look at")
    streams = {r.stream.name for r in records}
    if len(streams) > 1:
        named = sorted(streams)
        raise UsageError(
            f"these runs are of several streams ({', '.join(named)}): give those of one, as in runs@stream={named[0]}"
        )
    if any(r.stream.tasks != records[0].stream.tasks for r in records):
        raise UsageError(f"these runs of {records[0].stream.name} are not of the same tasks: give those of one order")
    alike: dict[str, list[Record]] = {}
    for r in records:
        facts = {k: v for k, v in vars(r.experiment).items() if k not in ("seed", "given")}
        alike.setdefault(json.dumps([facts, r.settings], sort_keys=True), []).append(r)
    sets = sorted(alike.values(), key=_order)
    for runs in sets:
        runs.sort(key=lambda r: int(r.experiment.seed))
        if len({r.experiment.seed for r in runs}) < len(runs):
            raise UsageError(f"two runs of one seed and settings, such as {runs[0].name}: give one of them")
    return [Group(label(runs[0], [other[0] for other in sets]), tuple(runs)) for runs in sets]


def _order(runs: list[Record]) -> tuple[int, str, int, list[tuple[float, str]]]:
    e = runs[0].experiment
    rank = list(METHODS).index(e.method) if e.method in METHODS else len(METHODS)
    return rank, e.method, e.buffer or 0, _natural(changes(runs[0]))


def _natural(text: str) -> list[tuple[float, str]]:
    """Numbers in a text by their size, before and after the rest: 5 comes before 10."""
    pieces = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(p), "") if i % 2 else (-1.0, p) for i, p in enumerate(pieces) if p]


def label(record: Record, others: Sequence[Record]) -> str:
    """The method, and those of its facts and settings that are not the same for all the others.

    What was changed from the preset is named too, unless it was changed alike in all of several.
    """
    method = record.experiment.method
    parts = [method_label(method)]
    for fact in FACTS:
        held = {getattr(r.experiment, fact) for r in others} - {None}
        if len(held) > 1 and getattr(record.experiment, fact) not in (None, USUAL.get(fact)):
            parts.append(f"{fact} {getattr(record.experiment, fact)}")
    same = {fact: getattr(record.experiment, fact) for fact in ("method", *FACTS)}
    rivals = [r.settings for r in others if same.items() <= vars(r.experiment).items()]
    differ = [name for name, v in record.settings.items() if any(rival.get(name) != v for rival in rivals)]
    unlike = changed(record) if method in METHODS else {}
    if len(differ) > 1:  # what is as in the preset goes without saying
        if not unlike:
            return ", ".join([*parts, PRESET])
        differ = [name for name in differ if name in unlike] or differ
    alike = [changed(r) for r in others] if len(others) > 1 else [{}]
    differ += [n for n, v in unlike.items() if n not in differ and any(n not in a or a[n] != v for a in alike)]
    return ", ".join(parts + [f"{name} {written(record.settings[name])}" for name in differ])
