"""What stands in a report: everything that the template only lays out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scommer import __version__
from scommer.analysis.groups import Group, groups
from scommer.analysis.report.cells import Row, Table, number, spread, table, word
from scommer.analysis.report.commands import Again, commands
from scommer.analysis.report.numbers import (
    forgotten_table,
    matrix_table,
    measure_table,
    run_table,
    score_table,
    scored,
)
from scommer.analysis.report.pictures import Picture, in_figures, pictures
from scommer.analysis.report.settings import computed, notes, settings, stream_facts
from scommer.analysis.summary import SETTINGS
from scommer.runs.record import Record


@dataclass(frozen=True)
class Section:
    """All that is said of one stream."""

    key: str  # of its anchors
    name: str
    facts: list[tuple[str, str]]
    notes: list[str]
    differences: Table | None
    partial: Table | None
    shared: Table
    scores: Table
    measures: Table | None
    forgotten: Table | None
    matrices: list[Table]
    runs: Table
    pictures: list[Picture]
    drawn: list[str]  # sets, where the figures are not of all
    missing: list[str]
    again: list[tuple[str, Again]]
    computed: list[tuple[str, str]]
    times: Table


def contents(records: Sequence[Record]) -> dict[str, Any]:
    """The values of the template; records of any number of streams."""
    by_stream: dict[str, list[Record]] = {}
    for r in records:
        by_stream.setdefault(json.dumps([r.stream.name, r.stream.tasks]), []).append(r)
    parts = sorted(by_stream.values(), key=lambda runs: str(runs[0].stream.name))
    names = [_name(runs[0], parts) for runs in parts]
    sets = [groups(runs) for runs in parts]
    return {
        "title": f"Continual learning: {', '.join(names)}",
        "version": __version__,
        "runs": len(records),
        "summary": _summary(names, sets),
        "leaders": [line for name, found in zip(names, sets, strict=True) for line in _leader(name, found)],
        "single": any(len(g.records) == 1 for found in sets for g in found),
        "nested": any(r.stream.kind == "gcil" for r in records),
        "held_out": any(r.experiment.validation for r in records),
        "sections": [_section(f"s{i}", name, s) for i, (name, s) in enumerate(zip(names, sets, strict=True), 1)],
    }


def _name(record: Record, parts: Sequence[Sequence[Record]]) -> str:
    """The stream's, with its fingerprint where another has that name too."""
    name = str(record.stream.name)
    twins = [runs for runs in parts if runs[0].stream.name == name]
    return name if len(twins) == 1 else f"{name} ({record.stream.fingerprint})"


def _section(key: str, name: str, sets: Sequence[Group]) -> Section:
    runs = [r for g in sets for r in g.records]
    few = in_figures(sets)
    made, missing = pictures(sets, few)
    drawn = [g.label for g in few] if len(few) < len(sets) else []
    differences, partial, shared = settings(sets)
    shared_facts, times = computed(runs)
    return Section(
        key, name, stream_facts(runs[0]), notes(runs), differences, partial, shared, score_table(sets),
        measure_table(sets), forgotten_table(sets), [matrix_table(g) for g in sets], run_table(sets), made, drawn,
        missing, [(g.label, again) for g in sets for again in commands(g.records)], shared_facts, times,
    )  # fmt: skip


def _summary(names: Sequence[str], sets: Sequence[Sequence[Group]]) -> Table:
    """A row for each stream and set of settings, by the memory that answers."""
    rows = []
    for name, found in zip(names, sets, strict=True):
        for g in found:
            lost = spread(scored(g, g.inference, "class_il", "forgetting"))
            ends = [spread(scored(g, g.inference, s, "accuracy")) for s in SETTINGS]
            where = word(name if len(names) > 1 else None)
            rows.append(Row((word(g.label), where, *ends, lost, number(len(g.records), "d"), word(g.inference))))
    numbers = (*SETTINGS.values(), "forgetting", "seeds")
    return table("At the end, the memory that answers (%)", ("method", "stream", *numbers, "memory"), rows, numbers)


def _leader(name: str, sets: Sequence[Group]) -> list[str]:
    """The two that end best, of those that learn task after task."""
    sets = [g for g in sets if not g.at_once]
    if len(sets) < 2:
        return []
    ends = [scored(g, g.inference, "class_il", "accuracy") for g in sets]
    best, second = sorted(zip(sets, ends, strict=True), key=lambda pair: -float(np.mean(pair[1])))[:2]
    return [f"On {name}, {_end(*best)} has the highest mean Class-IL accuracy, before {_end(*second)}."]


def _end(group: Group, seeds: Sequence[float]) -> str:
    return f"{group.label} ({spread(seeds).text} % {f'over {len(seeds)} seeds' if len(seeds) > 1 else 'with one seed'})"
