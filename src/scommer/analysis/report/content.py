"""The content of a report: everything that the template lays out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scommer import __version__
from scommer.analysis.groups import Group, group_runs
from scommer.analysis.measures import MEASURES
from scommer.analysis.report.commands import Command, commands
from scommer.analysis.report.leaders import epochs_of, leaders
from scommer.analysis.report.pictures import Picture, choose, pictures
from scommer.analysis.report.settings import provenance, setting_tables, stream_facts, warnings
from scommer.analysis.summary import SETTINGS, forgotten_table, matrix_table, measure_table, score_table, scores
from scommer.analysis.table import Table, number, number_columns, row, spread, text, text_columns
from scommer.runs.record import Record


@dataclass(frozen=True)
class Section:
    """The part of a report about one stream."""

    key: str  # prefix of its anchors
    name: str
    facts: list[tuple[str, str]]
    warnings: list[str]
    differing: Table | None
    partial: Table | None
    shared: Table
    scores: Table
    measures: Table | None
    meanings: list[tuple[str, str]]  # of the measures
    forgotten: Table | None
    matrices: list[Table]
    runs: Table
    pictures: list[Picture]
    drawn: list[str]  # labels, where the figures do not show all groups
    missing: list[str]  # what no figure shows, and why
    commands: list[tuple[str, Command]]
    provenance: list[tuple[str, str]]
    times: Table


def contents(records: Sequence[Record]) -> dict[str, Any]:
    """Return the values of the template, for records of any number of streams."""
    by_stream: dict[str, list[Record]] = {}
    for r in records:
        by_stream.setdefault(json.dumps([r.stream.name, r.stream.tasks]), []).append(r)
    parts = sorted(by_stream.values(), key=lambda runs: runs[0].stream.name)
    names = [_name(runs[0], parts) for runs in parts]
    groups_by_stream = [group_runs(runs) for runs in parts]
    return {
        "title": f"Continual learning: {', '.join(names)}",
        "version": __version__,
        "runs": len(records),
        "summary": _summary_table(names, groups_by_stream),
        "leaders": [line for part in zip(names, groups_by_stream, strict=True) for line in leaders(*part)],
        "single": any(len(g.records) == 1 for groups in groups_by_stream for g in groups),
        "nested": any(r.stream.kind == "gcil" for r in records),
        "held_out": any(r.experiment.validation for r in records),
        "sections": [
            _section(f"s{i}", *part, streams=len(parts))
            for i, part in enumerate(zip(names, groups_by_stream, strict=True), 1)
        ],
    }


def _name(record: Record, parts: Sequence[Sequence[Record]]) -> str:
    """Return the stream's name, with its fingerprint where another stream has the same name."""
    name = record.stream.name
    twins = [runs for runs in parts if runs[0].stream.name == name]
    return name if len(twins) == 1 else f"{name} ({record.stream.fingerprint})"


def _section(key: str, name: str, groups: Sequence[Group], streams: int) -> Section:
    runs = [r for g in groups for r in g.records]
    chosen = choose(groups)
    drawn, missing = pictures(groups, chosen, streams)
    differing, partial, shared = setting_tables(groups)
    facts, times = provenance(runs)
    measures = measure_table(groups)
    shown = [c.name for c in measures.columns] if measures else []
    return Section(
        key=key,
        name=name,
        facts=stream_facts(runs[0]),
        warnings=warnings(runs),
        differing=differing,
        partial=partial,
        shared=shared,
        scores=score_table(groups),
        measures=measures,
        meanings=[(name, MEASURES[name].meaning) for name in shown if name in MEASURES],
        forgotten=forgotten_table(groups),
        matrices=[_matrix(g) for g in groups],
        runs=_run_table(groups),
        pictures=drawn,
        drawn=[g.label for g in chosen] if len(chosen) < len(groups) else [],
        missing=missing,
        commands=[(g.label, command) for g in groups for command in commands(g.records)],
        provenance=facts,
        times=times,
    )


def _matrix(group: Group) -> Table:
    table = matrix_table(group)
    return replace(table, title=f"{group.label}, {table.title}")


def _summary_table(names: Sequence[str], groups_by_stream: Sequence[Sequence[Group]]) -> Table:
    """Return a row for each stream and group, with the scores of the memory used for inference."""
    rows = []
    for name, groups in zip(names, groups_by_stream, strict=True):
        for g in groups:
            ends = [spread(scores(g, g.inference, s, "accuracy")) for s in SETTINGS]
            lost = spread(scores(g, g.inference, "class_il", "forgetting"))
            stream = text(name if len(names) > 1 else None)
            size = g.records[0].experiment.buffer
            counts = [number(n, "d") for n in (size, epochs_of(g), len(g.records))]
            rows.append(row(g.label, stream, *ends, lost, *counts, g.inference))
    numbers = number_columns(*SETTINGS.values(), "forgetting", "buffer", "epochs", "seeds")
    columns = (*text_columns("method", "stream"), *numbers, *text_columns("memory"))
    return Table("At the end, the memory used for inference (%)", columns, tuple(rows)).without_empty()


def _run_table(groups: Sequence[Group]) -> Table:
    rows = []
    for g in groups:
        for r in g.records:
            of_memory = r.scores[g.inference]
            ends = [number(of_memory.get(s, {}).get("accuracy")) for s in SETTINGS]
            lost = number(of_memory.get("class_il", {}).get("forgetting"))
            rows.append(row(r.name, g.label, number(r.experiment.seed, "d"), *ends, lost))
    columns = (*text_columns("run", "method"), *number_columns("seed", *SETTINGS.values(), "forgetting"))
    return Table("Each run, the memory used for inference (%)", columns, tuple(rows)).without_empty()
