"""What stands in a report: everything that the template only lays out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scommer import __version__
from scommer.analysis import measures
from scommer.analysis.groups import FACTS, NAMES, Group, groups
from scommer.analysis.report.cells import Cell, Row, Table, number, spread, table, word
from scommer.analysis.report.commands import Again, commands
from scommer.analysis.report.pictures import Picture, pictures
from scommer.analysis.summary import MEASURES, SETTINGS
from scommer.presets import written
from scommer.record import Record

FORGOTTEN = 5  # classes a set of runs


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
    missing: list[str]
    again: list[tuple[str, Again]]
    computed: list[tuple[str, str]]
    times: Table


def contents(records: Sequence[Record]) -> dict[str, Any]:
    """The values of the template; records of any number of streams."""
    by_stream: dict[str, list[Record]] = {}
    for r in records:
        by_stream.setdefault(json.dumps([r.stream["name"], r.stream["tasks"]]), []).append(r)
    parts = sorted(by_stream.values(), key=lambda runs: str(runs[0].stream["name"]))
    names = [_name(runs[0], parts) for runs in parts]
    sets = [groups(runs) for runs in parts]
    return {
        "title": f"Continual learning: {', '.join(names)}",
        "version": __version__,
        "runs": len(records),
        "summary": _summary(names, sets),
        "leaders": [line for name, found in zip(names, sets, strict=True) for line in _leader(name, found)],
        "single": any(len(g.records) == 1 for found in sets for g in found),
        "nested": any(r.stream["kind"] == "gcil" for r in records),
        "held_out": any(r.experiment.get("validation") for r in records),
        "sections": [_section(f"s{i}", name, s) for i, (name, s) in enumerate(zip(names, sets, strict=True), 1)],
    }


def _name(record: Record, parts: Sequence[Sequence[Record]]) -> str:
    """The stream's, with its fingerprint where another has that name too."""
    name = str(record.stream["name"])
    twins = [runs for runs in parts if runs[0].stream["name"] == name]
    return name if len(twins) == 1 else f"{name} ({record.stream.get('fingerprint')})"


def _section(key: str, name: str, sets: Sequence[Group]) -> Section:
    runs = [r for g in sets for r in g.records]
    made, missing = pictures(sets)
    differences, partial, shared = _settings(sets)
    computed, times = _computed(runs)
    return Section(
        key, name, _facts(runs[0]), _notes(runs), differences, partial, shared, _scores(sets), _measures(sets),
        _forgotten(sets), [_matrix(g) for g in sets], _runs(sets), made, missing,
        [(g.label, again) for g in sets for again in commands(g.records)], computed, times,
    )  # fmt: skip


# --- summary


def _summary(names: Sequence[str], sets: Sequence[Sequence[Group]]) -> Table:
    """A row for each stream and set of settings, by the memory that answers."""
    rows = []
    for name, found in zip(names, sets, strict=True):
        for g in found:
            lost = spread(_scored(g, g.inference, "class_il", "forgetting"))
            ends = [spread(_scored(g, g.inference, s, "accuracy")) for s in SETTINGS]
            where = word(name if len(names) > 1 else None)
            rows.append(Row((word(g.label), where, *ends, lost, number(len(g.records), "d"), word(g.inference))))
    numbers = (*SETTINGS.values(), "forgetting", "seeds")
    return table("At the end, the memory that answers (%)", ("method", "stream", *numbers, "memory"), rows, numbers)


def _leader(name: str, sets: Sequence[Group]) -> list[str]:
    if len(sets) < 2:
        return []
    best = max(sets, key=lambda g: float(np.mean(_scored(g, g.inference, "class_il", "accuracy"))))
    end, n = spread(_scored(best, best.inference, "class_il", "accuracy")), len(best.records)
    seeds = f"over {n} seeds" if n > 1 else "with one seed"
    return [f"On {name}, {best.label} has the highest mean Class-IL accuracy: {end.text} % {seeds}."]


def _scored(group: Group, memory: str, setting: str, measure: str) -> list[float]:
    """One value a seed; none where it was not measured."""
    found = [r.scores.get(memory, {}).get(setting, {}).get(measure) for r in group.records]
    return [v for v in found if v is not None]


# --- settings


def _facts(record: Record) -> list[tuple[str, str]]:
    stream = record.stream
    sizes = sorted({len(t) for t in stream["tasks"]})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    found = [
        ("kind", stream["kind"]), ("data", stream.get("data")), ("classes", len(stream["classes"])),
        ("tasks", f"{len(stream['tasks'])}, of {each} classes"), ("fingerprint", stream.get("fingerprint")),
    ]  # fmt: skip
    return [(name, str(value)) for name, value in found if value is not None]


def _notes(runs: Sequence[Record]) -> list[str]:
    """In what these runs differ beside their settings."""
    what: dict[str, list[Any]] = {
        "commit": [(r.code.get("commit") or "unknown")[:12] for r in runs],
        "device": [r.device.get("name") for r in runs],
        "precision": [r.device.get("precision") for r in runs],
        "version of torch": [r.versions.get("torch") for r in runs],
        "fingerprint of the images": [r.stream.get("fingerprint") for r in runs],
    }
    named = {name: list(dict.fromkeys(str(v) for v in values)) for name, values in what.items()}
    notes = [f"The runs are not of one {name}: {', '.join(v)}." for name, v in named.items() if len(v) > 1]
    if any(r.code.get("dirty") for r in runs):
        notes.append("Some runs were of code with changes that were in no commit.")
    return notes


def _settings(sets: Sequence[Group]) -> tuple[Table | None, Table | None, Table]:
    """Those that differ, those that only some methods have, a column a set of runs; and those that all share."""
    held: list[dict[str, Cell]] = []
    for g in sets:
        e = g.records[0].experiment
        facts = {"method": word(NAMES.get(g.method, g.method))}
        facts |= {k: Cell(written(e[k])) for k in FACTS if e.get(k) is not None}
        held.append(facts | {k: Cell(written(v)) for k, v in g.records[0].settings.items()})
    names = list(dict.fromkeys(name for h in held for name in h))
    by_name = {n: [h.get(n, word(None)) for h in held] for n in names}
    kinds: dict[str, list[Row]] = {"differ": [], "partial": [], "shared": []}
    for n, cells in by_name.items():
        values = set(cells) - {word(None)}
        kind = "differ" if len(values) > 1 else "partial" if word(None) in cells else "shared"
        kinds[kind].append(Row((word(n), *(cells[:1] if kind == "shared" else cells))))
    labels = ("setting", *(g.label for g in sets))
    differ, partial = (
        Table(caption, labels, tuple(kinds[kind])) if kinds[kind] else None
        for kind, caption in (("differ", "Settings that differ"), ("partial", "Settings that only some methods have"))
    )
    return differ, partial, Table("Settings that all runs share", ("setting", "value"), tuple(kinds["shared"]))


# --- numbers


def _scores(sets: Sequence[Group]) -> Table:
    gcil = sets[0].records[0].stream["kind"] == "gcil"
    names = {m: "nested mean" if gcil and m == "accuracy" else n for m, n in MEASURES.items()}
    rows = []
    for g in sets:
        for memory, by_setting in g.records[0].scores.items():
            for setting in by_setting:
                cells = [spread(_scored(g, memory, setting, m)) for m in names]
                facts = (word(g.label), word(memory), word(SETTINGS[setting]), number(len(g.records), "d"))
                rows.append(Row((*facts, *cells), memory == g.inference))
    numbers = ("seeds", *names.values())
    return table("Accuracy, forgetting and transfer of each memory (%)", ("method", "memory", "setting", *numbers),
                 rows, numbers)  # fmt: skip


def _measures(sets: Sequence[Group]) -> Table | None:
    found = {(g.label, m): [measures.measures(r, m) for r in g.records] for g in sets for m in g.records[0].scores}
    names = list(dict.fromkeys(name for seeds in found.values() for one in seeds for name in one))
    if not names:
        return None
    answers = {(g.label, g.inference) for g in sets}
    rows = []
    for (label, memory), seeds in found.items():
        cells = [spread([s[n] for s in seeds if n in s], ".1f" if "%" in n else ".3f") for n in names]
        rows.append(Row((word(label), word(memory), *cells), (label, memory) in answers))
    return table("Recency, calibration and class codes at the end", ("method", "memory", *names), rows, names)


def _forgotten(sets: Sequence[Group]) -> Table | None:
    """The classes that lost most since their best moment, by the mean over seeds."""
    rows = []
    for g in sets:
        accuracy = [r.arrays.get(f"class_accuracy/{g.inference}") for r in g.records]
        known = [a for a in accuracy if a is not None and len(a) > 1]
        if not known:
            continue
        lost, share = (np.array([f(a) for a in known]) for f in (measures.forgotten, measures.share_of_forgetting))
        for c in np.argsort(-lost.mean(0), kind="stable")[:FORGOTTEN]:
            if lost[:, c].any():
                name = word(g.records[0].stream["classes"][c])
                cells = [spread(values[:, c].tolist(), ".1f") for values in (lost, share)]
                rows.append(Row((name, word(g.label), *cells)))
    numbers = ("lost (points)", "share of all lost (%)")
    return table("Most forgotten classes", ("class", "method", *numbers), rows, numbers) if rows else None


def _matrix(group: Group) -> Table:
    """R[t, i], the numbers behind the figures."""
    r = group.matrices().mean(0)
    head = tuple(f"T{i + 1}" for i in range(r.shape[1]))
    rows = tuple(
        Row((word(f"T{t + 1}" if len(r) > 1 else "all"), *(number(v, ".1f") for v in row))) for t, row in enumerate(r)
    )
    caption = f"{group.label}, {group.inference}: Class-IL accuracy on each task's test set after each task (%)"
    return Table(caption, ("after", *head), rows, frozenset(head), sortable=False)


def _runs(sets: Sequence[Group]) -> Table:
    rows = []
    for g in sets:
        for r in g.records:
            ends = [number(r.scores[g.inference].get(s, {}).get("accuracy")) for s in SETTINGS]
            lost = number(r.scores[g.inference].get("class_il", {}).get("forgetting"))
            rows.append(Row((word(r.name), word(g.label), number(r.experiment["seed"], "d"), *ends, lost)))
    numbers = ("seed", *SETTINGS.values(), "forgetting")
    return table("Each run, the memory that answers (%)", ("run", "method", *numbers), rows, numbers)


# --- how it was computed


def _computed(runs: Sequence[Record]) -> tuple[list[tuple[str, str]], Table]:
    """What all runs share, once; and the rest, a row a run."""
    packages = list(dict.fromkeys(name for r in runs for name in r.versions))
    columns: dict[str, list[Cell]] = {
        "commit": [word(_commit(r)) for r in runs],
        "sources": [word(r.code.get("sources")) for r in runs],
        "device": [word(r.device.get("name")) for r in runs],
        "precision": [word(r.device.get("precision")) for r in runs],
        **{p: [word(r.versions.get(p)) for r in runs] for p in packages},
    }
    shared = [(name, cells[0].text) for name, cells in columns.items() if len(set(cells)) == 1]
    columns = {name: cells for name, cells in columns.items() if len(set(cells)) > 1}
    columns |= {
        "minutes": [number(r.times["seconds"] / 60, ".1f") for r in runs],
        "steps": [number(r.times["steps"], ",d") for r in runs],
        "ms a step": [number(r.step_ms) for r in runs],
        "side by side": [number(r.times.get("together"), "d") for r in runs],
        "finished": [word(r.times.get("finished")) for r in runs],
    }
    rows = [Row((word(r.name), *(cells[i] for cells in columns.values()))) for i, r in enumerate(runs)]
    numbers = ("minutes", "steps", "ms a step", "side by side")
    return shared, table("What computed each run", ("run", *columns), rows, numbers)


def _commit(record: Record) -> str:
    code = record.code
    changed = ", with changes" if code.get("dirty") else ""
    return (code.get("commit") or "unknown") + changed + (", and earlier code" if code.get("earlier") else "")
