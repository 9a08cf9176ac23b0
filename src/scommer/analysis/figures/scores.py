"""Accuracy at the end, a row for each group: the figure for many settings."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scommer.analysis.figures import style
from scommer.analysis.groups import Group
from scommer.analysis.summary import SETTINGS, score_names

ROW = 0.16  # height in inches
LINE = 70  # characters of a label
MARKERS = {"working": "s", "plastic": "^", "stable": "D"}  # of memories; any other has a circle


def figure(groups: Sequence[Group]) -> Figure:
    """Draw each memory's mean of R[T, i], filled if used for inference; bars are one deviation over seeds."""
    scored = [s for s in SETTINGS if any(s in g.records[0].scores[g.inference] for g in groups)]
    labels = [textwrap.fill(g.label, LINE) for g in groups]
    heights = np.array([max(1, 0.7 * (1 + label.count("\n"))) for label in labels])
    rows = heights.cumsum() - heights / 2
    made = Figure(figsize=(style.PAGE, 0.9 + ROW * heights.sum()), layout="constrained")
    axes = made.subplots(1, len(scored), sharey=True, squeeze=False)[0]
    handles: dict[str, Line2D] = {}
    for row, group in zip(rows, groups, strict=True):
        hue, several = style.colour(group.method), len(group.memories)
        for n, memory in enumerate(group.memories):
            filled, y = memory == group.inference, row + 0.3 * (n - (several - 1) / 2)
            look: dict[str, Any] = {"color": hue, "marker": MARKERS.get(memory, "o")}
            for ax, setting in zip(axes, scored, strict=True):
                if setting in group.records[0].scores[memory]:
                    mean, std = style.mean_std(np.array([r.accuracy(memory, setting) for r in group.records]))
                    ax.errorbar(mean, y, xerr=std if len(group.records) > 1 else None, **look, elinewidth=0.8,
                                markerfacecolor=hue if filled else "white")  # fmt: skip
            name = f"{memory.replace('_', '-')} memory"
            handles.setdefault(name, Line2D([], [], linestyle="none", label=name, **{**look, "color": "0.4"}))
    for ax, setting in zip(axes, scored, strict=True):
        ax.set_xlabel(f"{SETTINGS[setting]} {score_names(groups[0].records[0].stream.kind)['accuracy']} (%)")
        ax.set_xlim(*np.clip(ax.get_xlim(), -1, 101))
        ax.grid(color="0.9", linewidth=0.5)
        ax.set_axisbelow(True)
    axes[0].set_yticks(rows, labels)
    axes[0].set_ylim(heights.sum(), 0)
    several_memories = any(len(g.memories) > 1 for g in groups)
    title = "; ".join(
        filter(None, ("filled: used for inference" if several_memories else "", style.seeds_note(groups)))
    )
    style.legend(made, list(handles.values()), title or None)
    return made
