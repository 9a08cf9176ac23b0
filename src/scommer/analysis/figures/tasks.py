"""Accuracy of each memory on each task after each task, as in Figure 2."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from scommer.analysis.figures import style
from scommer.analysis.figures.heatmap import ticks
from scommer.analysis.groups import Group
from scommer.errors import UsageError

COLUMNS = 3


def check(group: Group) -> None:
    """Refuse runs without a second task."""
    if group.at_once:
        raise UsageError("there is nothing to follow: it learned a single task, or all at once")


def figure(groups: Sequence[Group]) -> Figure:
    """Draw R[t, i] over t in a panel for each task (some of many), and the mean over the tasks so far in one more."""
    tasks = groups[0].matrices().shape[-1]
    nested = groups[0].records[0].stream.kind == "gcil"
    at, names = ticks(tasks)
    rows = -(-(len(at) + 1) // COLUMNS)
    made = Figure(figsize=(style.COLUMN, 0.7 + 1.0 * rows), layout="constrained")
    axes = list(made.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat)
    x = np.arange(1, tasks + 1)
    for group, look in zip(groups, style.looks(groups), strict=True):
        for memory, line_style in style.memory_lines(group):
            r, mark = group.matrices(memory), {} if memory == group.inference else {"markerfacecolor": "white"}
            for ax, i in zip(axes, at, strict=False):
                size = 2.5 if tasks <= 10 or i == tasks - 1 else 0  # a single point needs a marker
                style.line(ax, x[i:], r[:, i:, i], **look, **mark, linestyle=line_style, markersize=size)
            size = 2.5 if tasks <= 10 else 0
            style.line(axes[len(at)], x, seen_so_far(r), **look, **mark, linestyle=line_style, markersize=size)
    titles = [f"{'test set of' if nested else 'task'} {name}" for name in names] + ["mean so far"]
    for ax, title in zip(axes, titles, strict=False):
        ax.set_title(title, pad=3)
        ax.set_xticks([i + 1 for i in at], names)
    for ax in axes[len(titles) :]:
        ax.set_axis_off()
    style.percent_scale(axes[0])
    style.legend(made, style.legend_lines(groups))
    made.supylabel("accuracy (%)", fontsize=7)
    made.supxlabel("; ".join(filter(None, ("after learning task", style.seeds_note(groups)))), fontsize=7)
    return made


def seen_so_far(r: np.ndarray) -> np.ndarray:
    """Return the mean of R[t, i] over the tasks i ≤ t, after each task t, [S, T]."""
    return np.stack([r[:, t, : t + 1].mean(1) for t in range(r.shape[1])], axis=1)
