"""The tables of numbers: each a mean ± deviation over the seeds of a set of runs."""

from collections.abc import Sequence

import numpy as np

from scommer.analysis import measures
from scommer.analysis.groups import Group
from scommer.analysis.report.cells import Row, Table, number, spread, table, word
from scommer.analysis.summary import SETTINGS, names_of

FORGOTTEN = 5  # classes a set of runs


def scored(group: Group, memory: str, setting: str, measure: str) -> list[float]:
    """One value a seed; none where it was not measured."""
    found = [r.scores.get(memory, {}).get(setting, {}).get(measure) for r in group.records]
    return [v for v in found if v is not None]


def score_table(sets: Sequence[Group]) -> Table:
    names = names_of(sets[0].records[0].stream.kind)
    rows = []
    for g in sets:
        for memory, by_setting in g.records[0].scores.items():
            for setting in by_setting:
                cells = [spread(scored(g, memory, setting, m)) for m in names]
                facts = (word(g.label), word(memory), word(SETTINGS[setting]), number(len(g.records), "d"))
                rows.append(Row((*facts, *cells), memory == g.inference))
    numbers = ("seeds", *names.values())
    return table("Accuracy, forgetting and transfer of each memory (%)", ("method", "memory", "setting", *numbers),
                 rows, numbers)  # fmt: skip


def measure_table(sets: Sequence[Group]) -> Table | None:
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


def forgotten_table(sets: Sequence[Group]) -> Table | None:
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
                name = word(g.records[0].stream.classes[c])
                cells = [spread(values[:, c].tolist(), ".1f") for values in (lost, share)]
                rows.append(Row((name, word(g.label), *cells)))
    numbers = ("lost (points)", "share of all lost (%)")
    return table("Most forgotten classes", ("class", "method", *numbers), rows, numbers) if rows else None


def matrix_table(group: Group) -> Table:
    """R[t, i], the numbers behind the figures."""
    r = group.matrices().mean(0)
    head = tuple(f"T{i + 1}" for i in range(r.shape[1]))
    rows = tuple(
        Row((word(f"T{t + 1}" if len(r) > 1 else "all"), *(number(v, ".1f") for v in row))) for t, row in enumerate(r)
    )
    caption = f"{group.label}, {group.inference}: Class-IL accuracy on each task's test set after each task (%)"
    return Table(caption, ("after", *head), rows, frozenset(head), sortable=False)


def run_table(sets: Sequence[Group]) -> Table:
    rows = []
    for g in sets:
        for r in g.records:
            ends = [number(r.scores[g.inference].get(s, {}).get("accuracy")) for s in SETTINGS]
            lost = number(r.scores[g.inference].get("class_il", {}).get("forgetting"))
            rows.append(Row((word(r.name), word(g.label), number(r.experiment.seed, "d"), *ends, lost)))
    numbers = ("seed", *SETTINGS.values(), "forgetting")
    return table("Each run, the memory that answers (%)", ("run", "method", *numbers), rows, numbers)
