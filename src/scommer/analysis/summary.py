"""Tables of runs: accuracy, forgetting and transfer of each memory, statistics, forgotten classes, accuracy matrices.

A group has runs that differ only in their seed, shown as mean ± standard deviation; a single run is a group of one.
"""

from collections.abc import Sequence

import numpy as np

from scommer.analysis.groups import Group
from scommer.analysis.measures import MEASURES, forgotten, measures, share_of_forgetting
from scommer.analysis.table import Cell, Column, Table, number, number_columns, row, spread, text_columns
from scommer.runs.record import Record

SETTINGS = {"class_il": "Class-IL", "task_il": "Task-IL"}
SCORES = {
    "accuracy": "accuracy",
    "last": "last",
    "forgetting": "forgetting",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
}
WIDE = 10  # tasks: with more, a matrix in a terminal shows whole percents, without rules


def score_names(kind: str) -> dict[str, str]:
    """Return the scores of a kind of stream and their names."""
    if kind != "gcil":
        return SCORES
    # Early records of GCIL hold a forward transfer, which its nested test sets do not allow.
    return {s: "nested mean" if s == "accuracy" else name for s, name in SCORES.items() if s != "forward_transfer"}


def scores(group: Group, memory: str, setting: str, score: str) -> list[float]:
    """Return a score of each seed, without the seeds for which it is unknown."""
    found = [r.scores.get(memory, {}).get(setting, {}).get(score) for r in group.records]
    return [v for v in found if v is not None]


def commit_of(record: Record, letters: int = 40) -> str:
    """Return the commit of a run's code, and whether other code took part."""
    code = record.code
    changed = ", with changes" if code.dirty else ""
    return (code.commit or "unknown")[:letters] + changed + (", and earlier code" if code.earlier else "")


# --- tables of groups


def score_table(groups: Sequence[Group], title: str = "Accuracy, forgetting and transfer of each memory (%)") -> Table:
    """Return a row for each memory and setting of each group."""
    names = score_names(groups[0].records[0].stream.kind)
    rows = []
    for g in groups:
        for memory, by_setting in g.records[0].scores.items():
            for setting in by_setting:
                cells = [spread(scores(g, memory, setting, s)) for s in names]
                seeds = number(len(g.records), "d")
                rows.append(row(g.label, memory, SETTINGS[setting], seeds, *cells, strong=memory == g.inference))
    columns = (Column("method"), Column("memory", wrap=False), Column("setting"))
    return Table(title, (*columns, *number_columns("seeds", *names.values())), tuple(rows)).without_empty()


def measure_table(
    groups: Sequence[Group], title: str = "Recency, calibration and class codes at the end"
) -> Table | None:
    """Return the statistics of each memory of each group; None if the runs have none."""
    rows = []
    for g in groups:
        for memory in g.records[0].scores:
            found = [measures(r, memory) for r in g.records]
            cells = [_measure(name, [f[name] for f in found if name in f]) for name in MEASURES]
            rows.append(row(g.label, memory, *cells, strong=memory == g.inference))
    columns = (Column("method"), Column("memory", wrap=False), *number_columns(*MEASURES))
    table = Table(title, columns, tuple(rows)).without_empty()
    return table if len(table.columns) > 2 else None


def _measure(name: str, values: Sequence[float]) -> Cell:
    large = any(v >= 1000 for v in values)  # a bias can have any size
    return spread(values, f".{0 if large else MEASURES[name].digits}f")


def forgotten_table(groups: Sequence[Group], title: str = "Most forgotten classes (%)", most: int = 5) -> Table | None:
    """Return the classes most forgotten by the memory used for inference; None if none was forgotten."""
    rows = []
    for g in groups:
        held = [r.arrays.get(f"class_accuracy/{g.inference}") for r in g.records]
        accuracy = np.array([a for a in held if a is not None and len(a) > 1])  # [S, T, C]
        if not accuracy.size:
            continue
        lost, share = (np.array([f(a) for a in accuracy]) for f in (forgotten, share_of_forgetting))
        for c in np.argsort(-lost.mean(0), kind="stable")[:most]:
            if lost[:, c].any():
                values = (accuracy[:, :-1, c].max(1), accuracy[:, -1, c], lost[:, c], share[:, c])
                cells = [spread(v.tolist(), ".1f") for v in values]
                rows.append(row(g.records[0].stream.classes[c], g.label, *cells))
    columns = (*text_columns("class", "method"), *number_columns("best", "at the end", "lost", "share of all lost"))
    return Table(title, columns, tuple(rows)) if rows else None


def matrix_table(group: Group, memory: str | None = None, setting: str = "class_il", terminal: bool = False) -> Table:
    """Return R[t, i]: accuracy on each task's test set after each task, the mean over seeds."""
    r = np.stack([record.matrix(memory, setting) for record in group.records]).mean(0)
    dense = terminal and r.shape[1] > WIDE
    form, first, prefix = (".0f", "", "") if dense else (".1f", "after", "T")
    names = [f"T{t + 1}" for t in range(len(r))] if len(r) > 1 else ["all"]
    rows = [row(name, *(number(v, form) for v in values)) for name, values in zip(names, r, strict=True)]
    columns = (Column(first), *number_columns(*(f"{prefix}{i + 1}" for i in range(r.shape[1]))))
    title = f"{memory or group.inference}, {SETTINGS[setting]}: accuracy on each task after each task (%)"
    return Table(title, columns, tuple(rows), sortable=False, dense=dense)


def seeds_table(records: Sequence[Record]) -> Table:
    """Return accuracy and forgetting of runs that differ only in their seed."""
    e = records[0].experiment
    seeds = ", ".join(str(r.experiment.seed) for r in records)
    table = score_table([Group(e.method, tuple(records))], f"{e.method} on {e.stream}, seeds {seeds} (%)")
    return table.without("method", "seeds", "BWT", "FWT")


def method_table(records: Sequence[Record]) -> Table:
    """Return a row for each memory of each run on one stream, without the views with other statistics."""
    rows = []
    for r in records:
        for memory, by_setting in r.scores.items():
            if "/" not in memory:
                ends = [number(by_setting.get(s, {}).get("accuracy")) for s in SETTINGS]
                lost = number(by_setting["class_il"].get("forgetting"))
                rows.append(row(r.experiment.method, memory, *ends, lost, strong=memory == r.inference))
    columns = (*text_columns("method", "memory"), *number_columns(*SETTINGS.values(), "forgetting"))
    return Table(f"{records[0].stream.name}: mean over tasks at the end (%)", columns, tuple(rows))


# --- tables of one run


def short_tables(record: Record) -> list[Table]:
    """Return the tables that `scommer run` prints of a run: the Class-IL matrix and the scores."""
    return [matrix_table(_alone(record), terminal=True), _run_scores(record)]


def all_tables(record: Record) -> list[Table]:
    """Return the tables that `scommer show` prints of a run."""
    group = _alone(record)
    matrices = [matrix_table(group, setting=s, terminal=True) for s in record.matrices[record.inference]]
    further = (
        measure_table([group], "At the end of training"),
        forgotten_table([group], f"{record.inference}: most forgotten classes (%)"),
    )
    return [*matrices, _run_scores(record), *(t.without("method") for t in further if t is not None)]


def _alone(record: Record) -> Group:
    return Group(record.experiment.method, (record,))


def _run_scores(record: Record) -> Table:
    table = score_table([_alone(record)], f"{record.name}, in %").without("method", "seeds")
    return table if len(record.scores[record.inference]) > 1 else table.without("setting")
