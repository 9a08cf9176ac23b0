"""Loss and accuracy over time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from scommer.analysis.figures import style
from scommer.analysis.figures.heatmap import ticks
from scommer.analysis.figures.tasks import seen_so_far
from scommer.analysis.groups import Group
from scommer.analysis.selection import settings_of
from scommer.errors import UsageError
from scommer.methods.training import Training
from scommer.runs.record import Record
from scommer.runs.settings import coerce, setting_types


def check(group: Group) -> None:
    """Refuse runs without training losses."""
    if not group.arrays("loss").size:
        raise UsageError(f"{group.records[0].name} holds no losses: run it again with --fresh")


def figure(groups: Sequence[Group]) -> Figure:
    """Draw each epoch's mean training loss and, below, the mean accuracy on the tasks so far after each task.

    Time is in tasks, so that methods with different numbers of epochs end together. The losses of two methods are sums
    of different terms: compare their course, not their size.
    """
    made = Figure(figsize=(style.COLUMN, 3.6), layout="constrained")
    top, bottom = made.subplots(2, 1, sharex=True)
    top.set_yscale("log")
    tasks, epochs = groups[0].matrices().shape[-1], set[Any]()
    for group, look in zip(groups, style.looks(groups), strict=True):
        loss = group.arrays("loss")
        record, total = group.records[0], loss.shape[1]
        by_task = _epochs_by_task(record, total)
        epochs |= set(by_task) or {settings_of(record).get("epochs")}
        spans = by_task or [total]  # evenly, if all tasks are learned at once
        ends = np.concatenate([np.arange(1, n + 1) / n + i for i, n in enumerate(spans)]) * tasks / len(spans)
        style.line(top, ends, loss, color=look["color"], linewidth=0.8)
        for memory, line_style in style.memory_lines(group):
            r = group.matrices(memory)
            if group.at_once:
                style.line(
                    bottom, np.array([tasks]), r.mean(2), **{**look, "marker": "*", "markersize": 6, "clip_on": False}
                )
            else:
                size = 3 if tasks <= 10 else 0
                style.line(
                    bottom, np.arange(1, tasks + 1), seen_so_far(r), **look, linestyle=line_style, markersize=size
                )
    in_sequence = not all(g.at_once for g in groups)
    for ax in (top, bottom):
        for boundary in range(1, tasks) if in_sequence else ():
            ax.axvline(boundary, color="0.85", linewidth=0.5, zorder=0)
    top.set_ylabel("training loss")
    bottom.set_ylabel("mean accuracy of\ntasks so far (%)")
    style.percent_scale(bottom)
    at, names = ticks(tasks) if in_sequence else ([], [])
    bottom.set_xticks([i + 1 for i in at], names)
    bottom.set_xlim(0, tasks * 1.02)
    when, each = ("end of task", " each") if in_sequence else ("all at once", "")
    when += f", {epochs.pop()} epochs{each}" if len(epochs) == 1 else ""
    bottom.set_xlabel("; ".join(filter(None, (when, style.seeds_note(groups)))))
    style.legend(made, style.legend_lines(groups))
    return made


def _epochs_by_task(record: Record, total: int) -> list[int]:
    """Return the epochs of each task; none if it is not known, or if all tasks are learned at once."""
    types, stream = setting_types(Training), record.stream
    try:
        own = {name: coerce(name, v, types[name]) for name, v in settings_of(record).items() if name in types}
        epochs = Training(**own).passes_by_task(stream.images or (), stream.tasks)
    except UsageError:  # a record may hold anything
        return []
    return epochs if sum(epochs) == total else []
