"""How all figures look: one colour a method, safe for the colour-blind, and sizes of a paper's columns."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scommer.analysis.groups import Group
from scommer.methods import METHODS, Method

COLUMN, PAGE = 3.4, 7.0  # widths in inches
ROWS, ROW = 3, 0.14  # of a legend that a figure has room for; the height of a further one
RC: Any = {
    "font.size": 7, "axes.titlesize": 7, "axes.labelsize": 7, "xtick.labelsize": 6, "ytick.labelsize": 6,
    "legend.fontsize": 6, "legend.frameon": False, "lines.linewidth": 1.2, "lines.markersize": 3,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
    "pdf.fonttype": 42, "svg.hashsalt": "scommer",
}  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v")
HATCHES = ("", "", "", "////", "....")  # of bars, where shades come near each other
ANSWERS, WORKING, FURTHER = "-", (0, (2.5, 1)), (0, (0.8, 0.8))  # dashes of memories


def plain(text: str, longest: int | None = None) -> str:
    """A name from a record as it is to be read: a dollar begins no formula, and what cannot be printed is a mark."""
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$")


def colour(method: str) -> str:
    """Return a method's colour; that of any method where it is not known here."""
    return METHODS.get(method, Method).colour


def turns(groups: Sequence[Group]) -> list[int]:
    """For each group, how many before it have its colour."""
    hues = [colour(g.method) for g in groups]
    return [hues[:i].count(hue) for i, hue in enumerate(hues)]


def looks(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Colour and marker of each group; several of one method share its hue, lighter and darker in turn."""
    return [
        {"color": _shade(colour(g.method), turn), "marker": MARKERS[turn % len(MARKERS)]}
        for g, turn in zip(groups, turns(groups), strict=True)
    ]


def _shade(hue: str, turn: int) -> tuple[float, ...]:
    """The hue itself, then nearer to white and to black: by a half, by two thirds, ever less."""
    far = (1 + turn) // 2
    share, end = far / (far + 1), turn % 2
    return tuple((1 - share) * c + share * end for c in to_rgb(hue))


def upon(ground: tuple[float, ...]) -> str:
    """The colour in which letters are read on a ground: white on dark ones, black on light ones."""
    return "white" if np.dot(ground, (0.299, 0.587, 0.114)) < 0.6 else "black"


def memory_dashes(group: Group) -> list[tuple[str, Any]]:
    """Each memory of a group and how its line is drawn."""
    return [(m, ANSWERS if m == group.inference else WORKING if m == "working" else FURTHER) for m in group.memories]


def line(ax: Axes, x: np.ndarray, seeds: np.ndarray, **look: Any) -> None:
    """The mean over seeds [S, X], and a band of one standard deviation to either side where there are several."""
    log = ax.get_yscale() == "log"  # there of the logarithms, or the band could reach below zero
    mean, std = mean_std(np.log10(seeds) if log else seeds)
    middle, low, high = (10**v if log else v for v in (mean, mean - std, mean + std))
    ax.plot(x, middle, **look)
    if len(seeds) > 1:
        ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)


def mean_std(seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the first axis; the deviation of a sample, 0 for a single seed."""
    return seeds.mean(0), seeds.std(0, ddof=1) if len(seeds) > 1 else np.zeros(seeds.shape[1:])


def percent_scale(ax: Axes) -> None:
    """A scale in whole twenties around all that is drawn on it and on the axes that share it."""
    drawn = [other.dataLim for other in ax.get_shared_y_axes().get_siblings(ax) if other.has_data()]
    low, high = min(d.y0 for d in drawn), max(d.y1 for d in drawn)
    ax.set_ylim(20 * np.floor(max(min(low, 99), 0) / 20), min(20 * np.ceil(max(high, 1) / 20), 101))


def legend(figure: Figure, handles: Sequence[Any], title: str | None = None) -> None:
    """Above the axes, in as many columns as its longest label leaves room for; a figure grows with many rows."""
    room = int(figure.get_figwidth() * 18) - 8  # letters
    for h in handles:
        h.set_label(textwrap.fill(h.get_label(), room))
    longest = max(len(h.get_label().split("\n")[0]) for h in handles)
    columns = min(len(handles), max(1, int(figure.get_figwidth() * 18 / (longest + 8))))
    rows = -(-len(handles) // columns) + sum(h.get_label().count("\n") for h in handles)
    figure.set_figheight(figure.get_figheight() + ROW * max(0, rows - ROWS))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, title=title, title_fontsize=6)


def keys(groups: Sequence[Group]) -> list[Line2D]:
    """Entries of a legend: a line for each group, then the dashes of memories where a group has several."""
    lines = [Line2D([], [], label=g.label, **look) for g, look in zip(groups, looks(groups), strict=True)]
    several = [g for g in groups if len(g.memories) > 1]
    named: dict[str, Any] = {}
    for group in several:
        for memory, dash in memory_dashes(group):
            named.setdefault(f"{memory.replace('_', '-')} memory", dash)
    if len(several) < len(groups) and several:  # the others answer with a memory that is dashed for these
        named = {"memory that answers": ANSWERS} | {k: v for k, v in named.items() if v != ANSWERS}
    return lines + [Line2D([], [], label=name, linestyle=dash, color="0.4") for name, dash in named.items()]


def of_seeds(groups: Sequence[Group]) -> str:
    """What a mean and its spread are of, in words."""
    counts = {len(g.records) for g in groups}
    if counts == {1}:
        return ""
    few, many = min(counts), max(counts)
    return f"mean ± std of {few if few == many else f'{few} to {many}'} seeds"
