"""What was set, in what runs differ, and what computed them."""

from collections.abc import Sequence
from typing import Any

from scommer.analysis.groups import FACTS, NAMES, Group
from scommer.analysis.report.cells import Cell, Row, Table, number, table, word
from scommer.analysis.summary import commit_of
from scommer.runs.record import Record
from scommer.runs.settings import written


def stream_facts(record: Record) -> list[tuple[str, str]]:
    stream = record.stream
    sizes = sorted({len(t) for t in stream.tasks})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    found = [
        ("kind", stream.kind), ("data", stream.data), ("classes", len(stream.classes)),
        ("tasks", f"{len(stream.tasks)}, of {each} classes"), ("fingerprint", stream.fingerprint),
    ]  # fmt: skip
    return [(name, str(value)) for name, value in found if value is not None]


def notes(runs: Sequence[Record]) -> list[str]:
    """In what these runs differ beside their settings."""
    what: dict[str, list[Any]] = {
        "commit": [(r.code.commit or "unknown")[:12] for r in runs],
        "device": [r.device.name for r in runs],
        "precision": [r.device.precision for r in runs],
        "version of torch": [r.versions.get("torch") for r in runs],
        "fingerprint of the images": [r.stream.fingerprint for r in runs],
    }
    named = {name: list(dict.fromkeys(str(v) for v in values)) for name, values in what.items()}
    notes = [f"The runs are not of one {name}: {', '.join(v)}." for name, v in named.items() if len(v) > 1]
    if any(r.code.dirty for r in runs):
        notes.append("Some runs were of code with changes that were in no commit.")
    return notes


def settings(sets: Sequence[Group]) -> tuple[Table | None, Table | None, Table]:
    """Those that differ, those that only some methods have, a column a set of runs; and those that all share."""
    held: list[dict[str, Cell]] = []
    for g in sets:
        e = g.records[0].experiment
        facts = {"method": word(NAMES.get(g.method, g.method))}
        facts |= {k: Cell(written(value)) for k in FACTS if (value := getattr(e, k)) is not None}
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


def computed(runs: Sequence[Record]) -> tuple[list[tuple[str, str]], Table]:
    """What all runs share, once; and the rest, a row a run."""
    packages = list(dict.fromkeys(name for r in runs for name in r.versions))
    columns: dict[str, list[Cell]] = {
        "commit": [word(commit_of(r)) for r in runs],
        "sources": [word(r.code.sources) for r in runs],
        "device": [word(r.device.name) for r in runs],
        "precision": [word(r.device.precision) for r in runs],
        **{p: [word(r.versions.get(p)) for r in runs] for p in packages},
    }
    shared = [(name, cells[0].text) for name, cells in columns.items() if len(set(cells)) == 1]
    columns = {name: cells for name, cells in columns.items() if len(set(cells)) > 1}
    columns |= {
        "minutes": [number(r.times.seconds / 60, ".1f") for r in runs],
        "steps": [number(r.times.steps, ",d") for r in runs],
        "ms a step": [number(r.step_ms) for r in runs],
        "side by side": [number(r.times.together, "d") for r in runs],
        "finished": [word(r.times.finished) for r in runs],
    }
    rows = [Row((word(r.name), *(cells[i] for cells in columns.values()))) for i, r in enumerate(runs)]
    numbers = ("minutes", "steps", "ms a step", "side by side")
    return shared, table("What computed each run", ("run", *columns), rows, numbers)
