"""The settings of runs and how they differ, and the code and devices that computed them."""

from collections.abc import Sequence
from typing import Any

from scommer.analysis.groups import FACTS, Group, method_label
from scommer.analysis.selection import settings_of
from scommer.analysis.summary import commit_of
from scommer.analysis.table import Cell, Row, Table, number, number_columns, row, text, text_columns
from scommer.runs.record import Record
from scommer.runs.settings import written


def stream_facts(record: Record) -> list[tuple[str, str]]:
    """Return what a reader needs to know about the stream, by name."""
    stream = record.stream
    sizes = sorted({len(t) for t in stream.tasks})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return [
        ("kind", stream.kind), ("data", stream.data), ("classes", str(len(stream.classes))),
        ("tasks", f"{len(stream.tasks)}, of {each} classes"), ("fingerprint", stream.fingerprint),
    ]  # fmt: skip


def warnings(runs: Sequence[Record]) -> list[str]:
    """Return how these runs differ besides their settings."""
    what: dict[str, list[Any]] = {
        "commit": [(r.code.commit or "unknown")[:12] for r in runs],
        "device": [r.device.name for r in runs],
        "precision": [r.device.precision for r in runs],
        "version of torch": [r.versions.get("torch") for r in runs],
        "fingerprint of the images": [r.stream.fingerprint for r in runs],
    }
    values = {name: list(dict.fromkeys(map(str, found))) for name, found in what.items()}
    lines = [f"The runs differ in {name}: {', '.join(v)}." for name, v in values.items() if len(v) > 1]
    if any(r.code.dirty for r in runs):
        lines.append("The code of some runs had uncommitted changes.")
    return lines


def setting_tables(groups: Sequence[Group]) -> tuple[Table | None, Table | None, Table]:
    """Return the settings that differ, those that only some methods have, and those that all runs share.

    The first two have a column for each group.
    """
    held: list[dict[str, Cell]] = []
    for g in groups:
        e = g.records[0].experiment
        facts = {"method": text(method_label(g.method))}
        facts |= {k: text(written(value)) for k in FACTS if (value := getattr(e, k)) is not None}
        held.append(facts | {k: text(written(v)) for k, v in settings_of(g.records[0]).items()})
    kinds: dict[str, list[Row]] = {"differing": [], "partial": [], "shared": []}
    for name in dict.fromkeys(name for h in held for name in h):
        cells = [h.get(name, text(None)) for h in held]
        values = set(cells) - {text(None)}
        kind = "differing" if len(values) > 1 else "partial" if text(None) in cells else "shared"
        kinds[kind].append(row(name, *(cells[:1] if kind == "shared" else cells)))
    columns = text_columns("setting", *(g.label for g in groups))
    titles = {"differing": "Settings that differ", "partial": "Settings that only some methods have"}
    differing, partial = (
        Table(title, columns, tuple(kinds[kind])) if kinds[kind] else None for kind, title in titles.items()
    )
    shared = Table("Settings that all runs share", text_columns("setting", "value"), tuple(kinds["shared"]))
    return differing, partial, shared


def provenance(runs: Sequence[Record]) -> tuple[list[tuple[str, str]], Table]:
    """Return the code, device and versions that all runs share; and a table with the rest for each run."""
    packages = list(dict.fromkeys(name for r in runs for name in r.versions))
    columns: dict[str, list[Cell]] = {
        "commit": [text(commit_of(r)) for r in runs],
        "sources": [text(r.code.sources) for r in runs],
        "device": [text(r.device.name) for r in runs],
        "precision": [text(r.device.precision) for r in runs],
        **{p: [text(r.versions.get(p)) for r in runs] for p in packages},
    }
    shared = [(name, cells[0].text) for name, cells in columns.items() if len(set(cells)) == 1]
    columns = {name: cells for name, cells in columns.items() if len(set(cells)) > 1}
    times = {
        "minutes": [number(r.times.seconds / 60, ".1f") for r in runs],
        "steps": [number(r.times.steps, ",d") for r in runs],
        "ms per step": [number(r.step_ms) for r in runs],
        "side by side": [number(r.times.together, "d") for r in runs],
    }
    finished = {"finished": [text(r.times.finished) for r in runs]}
    heads = (*text_columns("run", *columns), *number_columns(*times), *text_columns(*finished))
    of_run = zip(*(columns | times | finished).values(), strict=True)
    rows = tuple(row(r.name, *cells) for r, cells in zip(runs, of_run, strict=True))
    return shared, Table("Code, device and time of each run", heads, rows).without_empty()
