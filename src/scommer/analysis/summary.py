"""A run in a table: accuracy, forgetting and transfer of each memory."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from scommer.analysis import measures
from scommer.runs.record import Record

MEASURES = {
    "accuracy": "accuracy",
    "last": "last",
    "forgetting": "forgetting",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
}
SETTINGS = {"class_il": "Class-IL", "task_il": "Task-IL"}


def names_of(kind: str) -> dict[str, str]:
    """The measures of a kind of stream and their names; early records of GCIL have a forward transfer that is none."""
    if kind != "gcil":
        return MEASURES
    return {m: "nested mean" if m == "accuracy" else n for m, n in MEASURES.items() if m != "forward_transfer"}


def spread(mean: float, std: float | None, form: str = ".2f") -> str:
    """`69.19 ± 0.61`, or the mean alone."""
    alone = std is None or math.isnan(std)
    return format(mean, form) if alone else f"{format(mean, form)} ± {format(std, form)}"


def mean_std(values: Sequence[float], form: str = ".2f") -> str:
    """Of a sample; the mean alone of one value."""
    return spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, form)


def commit_of(record: Record, letters: int = 40) -> str:
    """By which code a run was made."""
    code = record.code
    changed = ", with changes" if code.dirty else ""
    return (code.commit or "unknown")[:letters] + changed + (", and earlier code" if code.earlier else "")


def summary_table(record: Record) -> Table:
    """Every memory and setting of one run; the memory that answers is marked."""
    names = names_of(record.stream.kind)
    title = f"{record.name}, in %"
    table = Table(title=title, title_justify="left", min_width=len(title))
    table.add_column("memory", no_wrap=True)
    several = len(record.scores[record.inference]) > 1
    if several:
        table.add_column("setting")
    first = next(iter(record.scores[record.inference].values()))
    shown = [m for m in names if m in first]
    for m in shown:
        table.add_column(names[m], justify="right")
    for memory, by_setting in record.scores.items():
        for setting, values in by_setting.items():
            style = "bold" if memory == record.inference else ""
            cells = [f"{values[m]:.2f}" for m in shown]
            table.add_row(memory, *([SETTINGS[setting]] if several else []), *cells, style=style)
    return table


def measures_table(record: Record) -> Table | None:
    """What the arrays of a run tell of each memory; None where there are none."""
    by_memory = {memory: measures.measures(record, memory) for memory in record.scores}
    names = list(dict.fromkeys(name for found in by_memory.values() for name in found))
    if not names:
        return None
    table = Table(title="At the end of training", title_justify="left")
    table.add_column("memory", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for memory, found in by_memory.items():
        cells = [_measure(found[n], 1 if "%" in n else 3) if n in found else "–" for n in names]
        table.add_row(memory, *cells, style="bold" if memory == record.inference else "")
    return table


def _measure(value: float, digits: int) -> str:
    """Whole where it is large: a bias can be of any size."""
    return f"{value:.{digits if value < 1000 else 0}f}"


def forgotten_table(record: Record, most: int = 5) -> Table | None:
    """The classes on which most of the forgetting of the memory that answers falls; None if nothing was forgotten."""
    accuracy = record.arrays.get(f"class_accuracy/{record.inference}")
    if accuracy is None or len(accuracy) < 2 or not measures.forgotten(accuracy).any():
        return None
    lost, share = measures.forgotten(accuracy), measures.share_of_forgetting(accuracy)
    table = Table(title=f"{record.inference}: most forgotten classes (%)", title_justify="left")
    table.add_column("class", overflow="fold")
    for column in ("best", "at the end", "lost", "share of all lost"):
        table.add_column(column, justify="right")
    for c in np.argsort(-lost, kind="stable")[:most]:
        if lost[c] > 0:
            numbers = (accuracy[:-1, c].max(), accuracy[-1, c], lost[c], share[c])
            table.add_row(record.stream.classes[c], *(f"{v:.1f}" for v in numbers))
    return table


def matrix_table(record: Record, memory: str, setting: str = "class_il") -> Table:
    """R[t, i]: accuracy on each task's test set after each task; whole percents where there are many."""
    r = record.matrix(memory, setting)
    title = f"{memory}, {SETTINGS[setting]}: accuracy on each task after each (%)"
    many = r.shape[1] > 10
    table = Table(title=title, title_justify="left", min_width=None if many else len(title))
    if many:
        table.box, table.padding = None, (0, 1, 0, 0)
    table.add_column("" if many else "after", justify="right")
    for i in range(r.shape[1]):
        table.add_column(f"{i + 1}" if many else f"T{i + 1}", justify="right")
    for t, row in enumerate(r):
        table.add_row(f"T{t + 1}" if len(r) > 1 else "all", *(f"{v:.0f}" if many else f"{v:.1f}" for v in row))
    return table


def seeds_table(records: Sequence[Record]) -> Table:
    """Mean ± standard deviation (of a sample) over runs that differ in their seed."""
    first = records[0]
    seeds = ", ".join(str(r.experiment.seed) for r in records)
    table = Table(title=f"{first.experiment.method} on {first.stream.name}, seeds {seeds} (%)", title_justify="left")
    table.add_column("memory", no_wrap=True)
    names = names_of(first.stream.kind)
    columns = [(s, m) for s in first.scores[first.inference] for m in names if m in first.scores[first.inference][s]]
    columns = [(s, m) for s, m in columns if m in ("accuracy", "last", "forgetting")]
    for setting, m in columns:
        table.add_column(f"{SETTINGS[setting]} {names[m]}", justify="right")
    for memory in first.scores:
        values = [[r.scores[memory][s][m] for r in records] for s, m in columns]
        table.add_row(memory, *map(mean_std, values), style="bold" if memory == first.inference else "")
    return table


def side_by_side(records: Sequence[Record]) -> Table:
    """Several methods on one stream, each memory a row."""
    table = Table(title=f"{records[0].stream.name}: at the end, mean over tasks (%)", title_justify="left")
    for column in ("method", "memory"):
        table.add_column(column)
    for column in ("Class-IL", "Task-IL", "forgetting"):
        table.add_column(column, justify="right")
    for record in records:
        for memory in record.scores:
            if "/" in memory:
                continue
            scores = record.scores[memory]
            lost = scores["class_il"].get("forgetting")
            table.add_row(
                record.experiment.method, memory,
                f"{scores['class_il']['accuracy']:.2f}",
                f"{scores['task_il']['accuracy']:.2f}" if "task_il" in scores else "–",
                "–" if lost is None else f"{lost:.2f}",
                style="bold" if memory == record.inference else "",
            )  # fmt: skip
    return table
