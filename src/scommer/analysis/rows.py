"""Runs as rows of a spreadsheet: one each, with everything that was set and every score."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from scommer.analysis.selection import settings_of
from scommer.runs.record import Record
from scommer.runs.settings import written


def row_of(record: Record) -> dict[str, Any]:
    """Return a run as plain values by name: the experiment, its settings, the scores of each memory, and times.

    Scores are those of the memory that answers; those of another have its name in front: working.class_il.accuracy.
    """
    e = record.experiment
    row: dict[str, Any] = {"name": record.name, "stream": e.stream, "method": e.method, "buffer": e.buffer,
                           "seed": e.seed, "variant": e.variant, "validation": e.validation}  # fmt: skip
    row |= settings_of(record)
    for memory in sorted(record.scores, key=lambda name: name != record.inference):
        prefix = "" if memory == record.inference else f"{memory}."
        for setting, scores in record.scores[memory].items():
            row |= {f"{prefix}{setting}.{measure}": value for measure, value in scores.items()}
    t, d = record.times, record.device
    row |= {"memory": record.inference, "steps": t.steps, "seconds": t.seconds, "together": t.together}
    return row | {"finished": t.finished, "device": d.name, "precision": d.precision}


def rows_of(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a row for each run, all with the same columns: None where a run has no such value."""
    rows = [row_of(r) for r in records]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Return rows as CSV; a value that is missing is empty, lists are as `--set` takes them."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(rows[0] if rows else ())
    for row in rows:
        table.writerow("" if v is None else written(v) if isinstance(v, list | bool) else v for v in row.values())
    return text.getvalue()
