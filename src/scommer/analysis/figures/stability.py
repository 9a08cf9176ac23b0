"""Stability and plasticity: accuracy on each task when it was learned, and at the end."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from scommer.analysis.figures import style
from scommer.analysis.figures.heatmap import ticks
from scommer.analysis.groups import Group
from scommer.errors import UsageError


def check(group: Group) -> None:
    """Refuse runs without a second task."""
    if group.at_once:
        raise UsageError("there is nothing to forget: it learned a single task, or all at once")


def figure(groups: Sequence[Group]) -> Figure:
    """Draw R[T, i] over R[i, i], a point for each task and group.

    Points to the right are plastic, points near the diagonal or above it stable. The last task is always on it.
    """
    made = Figure(figsize=(style.COLUMN, 3.3), layout="constrained")
    ax = made.subplots()
    handles = []
    for group, look in zip(groups, style.looks(groups), strict=True):
        r = group.matrices()
        (learned, learned_std), (kept, kept_std) = (style.mean_std(v) for v in (r.diagonal(axis1=1, axis2=2), r[:, -1]))
        if len(r) > 1:
            ax.errorbar(learned, kept, kept_std, learned_std, "none", ecolor=look["color"], elinewidth=0.5, zorder=1)
        label = f"{group.label}: {learned.mean():.1f} → {kept.mean():.1f} %"
        few = len(learned) <= 10
        handles += ax.plot(learned, kept, linestyle="none", label=label, **look, markersize=7 if few else 4,
                           markeredgecolor="white", markeredgewidth=0.4, zorder=2)  # fmt: skip
        same: dict[tuple[int, int], list[str]] = {}  # tasks whose points overlap
        for i in ticks(len(learned))[0]:
            same.setdefault((round(learned[i] / 2), round(kept[i] / 2)), []).append(str(i + 1))
        for names in same.values():
            i, inside = int(names[0]) - 1, few and len(names) == 1
            ax.annotate(",".join(names), (learned[i], kept[i]), (0, 0 if inside else 4), textcoords="offset points",
                        color=style.text_colour(look["color"]) if inside else "black", fontsize=5, ha="center",
                        va="center_baseline" if inside else "bottom", zorder=3)  # fmt: skip
    x, y = (np.clip(limits, -4, 104) for limits in (ax.get_xlim(), ax.get_ylim()))
    handles += ax.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, linestyle="--", zorder=0,
                       label="nothing lost")  # fmt: skip
    ax.set_xlim(*x)
    ax.set_ylim(*y)
    ax.set_xlabel("accuracy on task i when it was learned, $R_{i,i}$ (%)")
    ax.set_ylabel("accuracy on task i at the end, $R_{T,i}$ (%)")
    title = "mean over tasks: when learned → at the end"
    style.legend(made, handles, "; ".join(filter(None, (title, style.seeds_note(groups)))))
    return made
