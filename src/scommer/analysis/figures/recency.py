"""How likely each task is to be predicted at the end, as in Figure 5: the bias towards recent tasks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from scommer.analysis.figures import style
from scommer.analysis.figures.heatmap import ticks
from scommer.analysis.groups import Group
from scommer.analysis.measures import last_seen


def check(group: Group) -> None:
    """Refuse runs without class probabilities."""
    group.arrays(f"class_probability/{group.inference}")


def figure(groups: Sequence[Group]) -> Figure:
    """Draw the mean softmax of each task's classes over all test images, and a line for even probabilities.

    If classes recur (as in GCIL), a class belongs to the task in which it was last seen. The bar is then the mean
    over these classes, since their number, written above, differs from task to task.
    """
    stream = groups[0].records[0].stream
    tasks = stream.tasks
    nested = sum(map(len, tasks)) > len({c for task in tasks for c in task})
    last = last_seen(tasks, len(stream.classes))
    made = Figure(figsize=(style.COLUMN, 2.3), layout="constrained")
    ax = made.subplots()
    width = 0.8 / len(groups)
    handles: list[Any] = []
    for n, (group, look, repeat) in enumerate(zip(groups, style.looks(groups), style.repeats(groups), strict=True)):
        p = 100 * group.arrays(f"class_probability/{group.inference}")  # [S, C]
        members = [last == t for t in range(len(tasks))]
        mean, std = style.mean_std(
            np.stack([(p[:, m].mean(1) if m.any() else 0 * p[:, 0]) if nested else p[:, m].sum(1) for m in members], 1)
        )
        x = np.arange(len(tasks)) + (n - (len(groups) - 1) / 2) * width
        bars = ax.bar(x, mean, width, label=group.label, color=look["color"], edgecolor="white", linewidth=0.3,
                      hatch=style.HATCHES[repeat % len(style.HATCHES)])  # fmt: skip
        if len(p) > 1:
            ax.errorbar(x, mean, std, linestyle="none", color="0.2", elinewidth=0.6, capsize=1)
        handles.append(bars)
    if nested:
        for t, m in enumerate(members):
            ax.text(t, 1.01, m.sum() or "", transform=ax.get_xaxis_transform(), ha="center", fontsize=5)
    even = 100 / (np.count_nonzero(last >= 0) if nested else len(tasks))
    handles.append(ax.axhline(even, color="0.4", linewidth=0.8, linestyle="--", label="even"))
    ax.set_ylim(bottom=0)
    ax.set_xticks(*ticks(len(tasks)))
    axis, separator = ("task of last appearance (classes above)", "\n") if nested else ("task", "; ")
    ax.set_xlabel(separator.join(filter(None, (axis, style.seeds_note(groups)))))
    ax.set_ylabel(f"mean probability of {'a class' if nested else 'the task'} (%)")
    style.legend(made, handles)
    return made
