"""The results document: the paper's tables as far as there are runs, and every run."""

from collections.abc import Sequence

from scommer.analysis.selection import changes
from scommer.analysis.summary import SETTINGS, commit_of
from scommer.analysis.table import Cell, Table, as_markdown, number, number_columns, row, spread, text, text_columns
from scommer.memory.long_term import STATISTICS
from scommer.paper import tables
from scommer.runs.record import Record

TOP = """# Results

*Written by `scommer results{option}` from the records in `{runs}/` and from `{runs}/README.md`, the first part. Edit
those, not this file.*
"""

TABLES = """## The paper's tables

Accuracy in percent after the last task: the mean over tasks, or over the nested test sets of GCIL. Ours is the
mean ± standard deviation (of a sample) over seeds. A star marks a mean that differs from the published one by more than
two of its standard deviations (where the paper gives one) and, with several seeds, by more than two of our own. Only
numbers with runs are shown: `scommer table main` shows all, and `scommer reproduce main` runs what is missing.
"""

CHOICES = """## Batch-norm statistics of long-term memory

The same weights with three choices of statistics at inference: those of its own passes over replayed images (`replay`,
as published), those of working memory, or recalibrated when a task ends ([variants.md](variants.md)). CLS-ER's stable
memory has the first two.
"""

RUNS = """## Every run

Scores are for the memory used for inference. The time of a step is for one learner: the run's time divided by its steps
and by the number of runs side by side. A record without that number counts as a single run.
"""


def document(records: Sequence[Record], reading: str, runs: str = "results") -> str:
    """Return the document in Markdown: what the runs show, in words, then all numbers."""
    top = TOP.format(runs=runs, option="" if runs == "results" else f" --runs {runs}")
    parts = [top, reading, TABLES, *(_paper_table(name, records) for name in tables.TABLES)]
    return "\n".join([*parts, CHOICES, _choices(records), RUNS, _runs(records)])


def _paper_table(name: str, records: Sequence[Record]) -> str:
    entries = tables.entries(name, records)
    done = [e for e in entries if e.ours]
    head = f"### `{name}`: {tables.paper_numbers()[name]['source']}\n\n"
    head += f"{len(done)} of {len(entries)} numbers have runs.\n"
    return head + (f"\n{as_markdown(tables.paper_table(name, done))}" if done else "")


CELL = ("stream", "method", "buffer", "changes")


def _cell(record: Record) -> tuple[str, ...]:
    """Return everything that identifies a run except its seed."""
    e = record.experiment
    return e.stream, e.method, str(e.buffer or "–"), changes(record)


def _choices(records: Sequence[Record]) -> str:
    found: dict[tuple[str, ...], list[Record]] = {}
    for r in sorted(records, key=_cell):
        for memory in {m for m, _, choice in (view.partition("/") for view in r.scores) if choice in STATISTICS}:
            for setting in r.scores.get(memory, {}):
                found.setdefault((*_cell(r), setting, memory), []).append(r)
    rows = []
    for (*cell, setting, memory), runs in found.items():
        means = [_mean(runs, memory, choice, setting) for choice in STATISTICS]
        rows.append(row(*cell, SETTINGS[setting], number(len(runs), "d"), *means))
    columns = text_columns(*CELL, "setting"), number_columns("seeds", *STATISTICS)
    return as_markdown(Table("Choices of statistics", columns[0] + columns[1], tuple(rows)))


def _mean(runs: Sequence[Record], memory: str, choice: str, setting: str) -> Cell:
    """Return the accuracy with these statistics; those used for inference are scored under the memory's own name."""
    views = [memory if _own_choice(r, memory) == choice else f"{memory}/{choice}" for r in runs]
    values = [r.accuracy(view, setting) for r, view in zip(runs, views, strict=True) if view in r.scores]
    return spread(values)


def _own_choice(record: Record, memory: str) -> str | None:
    """Return the statistics that a memory uses for inference: the first without a separate score."""
    return next((choice for choice in STATISTICS if f"{memory}/{choice}" not in record.scores), None)


def _runs(records: Sequence[Record]) -> str:
    rows = []
    for r in sorted(records, key=lambda r: (_cell(r), r.experiment.seed)):
        by_setting = r.scores[r.inference]
        scores = [number(by_setting.get(s, {}).get("accuracy")) for s in SETTINGS]
        where = (commit_of(r, 7), r.device.name, text(r.device.precision))
        times = (number(r.times.seconds / 60, ".1f"), number(r.times.together, "d"), number(r.step_ms))
        rows.append(row(*_cell(r), number(r.experiment.seed, "d"), *scores, *where, *times))
    scores_of, where_of = number_columns("seed", *SETTINGS.values()), text_columns("commit", "device", "precision")
    columns = (*text_columns(*CELL), *scores_of, *where_of, *number_columns("minutes", "side by side", "ms per step"))
    return as_markdown(Table("Every run", columns, tuple(rows)))
