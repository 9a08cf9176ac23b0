"""Accuracy at the end, a row for each set of runs: the figure for many settings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scommer.analysis.figures import style
from scommer.analysis.groups import Group
from scommer.analysis.summary import SETTINGS, names_of

ROW = 0.14  # its height in inches
ANSWERS = "memory that answers"
MARKS = {style.ANSWERS: "o", style.WORKING: "s", style.FURTHER: "^"}  # of memories, by their dashes


def figure(groups: Sequence[Group]) -> Figure:
    """Mean over tasks of R[T, i] of each memory, filled where it answers; a bar of one deviation over seeds."""
    scored = [s for s in SETTINGS if any(s in g.records[0].scores[g.inference] for g in groups)]
    made = Figure(figsize=(style.PAGE, 0.7 + ROW * len(groups)), layout="constrained")
    axes = made.subplots(1, len(scored), sharey=True, squeeze=False)[0]
    handles: dict[str, Line2D] = {}
    for y, group in enumerate(groups):
        hue = style.colour(group.method)
        for memory, dash in style.memory_dashes(group):
            filled = memory == group.inference
            look: dict[str, Any] = {"color": hue, "marker": MARKS[dash], "markerfacecolor": hue if filled else "white"}
            for ax, setting in zip(axes, scored, strict=True):
                if setting in group.records[0].scores[memory]:
                    mean, std = style.mean_std(np.array([r.accuracy(memory, setting) for r in group.records]))
                    ax.errorbar(mean, y, xerr=std if len(group.records) > 1 else None, **look, elinewidth=0.8)
            name = ANSWERS if filled else f"{memory.replace('_', '-')} memory"
            key = {**look, "color": "0.4", "markerfacecolor": "0.4" if filled else "white"}
            handles.setdefault(name, Line2D([], [], linestyle="none", label=name, **key))
    for ax, setting in zip(axes, scored, strict=True):
        ax.set_xlabel(f"{SETTINGS[setting]} {names_of(groups[0].records[0].stream['kind'])['accuracy']} (%)")
        ax.grid(color="0.9", linewidth=0.5)
        ax.set_axisbelow(True)
    axes[0].set_yticks(range(len(groups)), [g.label for g in groups])
    axes[0].set_ylim(len(groups) - 0.4, -0.6)
    style.legend(made, sorted(handles.values(), key=lambda h: h.get_label() != ANSWERS), style.of_seeds(groups) or None)
    return made
