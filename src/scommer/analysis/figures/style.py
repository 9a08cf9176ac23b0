"""The style of all figures: colours by method, markers, legends, and the widths of a paper's columns."""

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scommer.analysis.groups import Group
from scommer.methods import METHODS, Method

COLUMN, PAGE = 3.4, 7.0  # widths in inches
ROWS, ROW = 3, 0.14  # legend rows that a figure has room for; the height of each further one, in inches
RC: Any = {
    "font.size": 7, "axes.titlesize": 7, "axes.labelsize": 7, "xtick.labelsize": 6, "ytick.labelsize": 6,
    "legend.fontsize": 6, "legend.frameon": False, "lines.linewidth": 1.2, "lines.markersize": 3,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
    "pdf.fonttype": 42, "svg.hashsalt": "scommer",
}  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v")
HATCHES = ("", "", "", "////", "....")  # of bars: later shades are close to each other
ANSWERS, WORKING, FURTHER = "-", (0, (2.5, 1)), (0, (0.8, 0.8))  # line styles of memories


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style; a character that the font lacks becomes a box, without a warning."""
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def plain(text: str, longest: int | None = None) -> str:
    """Return a name as plain text: a dollar starts no formula, and a question mark replaces what cannot be printed."""
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$")


def colour(method: str) -> str:
    """Return a method's colour; the default if it is not loaded."""
    return METHODS.get(method, Method).colour


def repeats(groups: Sequence[Group]) -> list[int]:
    """Return for each group how many groups before it have the same colour."""
    hues = [colour(g.method) for g in groups]
    return [hues[:i].count(hue) for i, hue in enumerate(hues)]


def looks(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return colour and marker of each group; groups of one method alternate between lighter and darker shades."""
    return [
        {"color": _shade(colour(g.method), n), "marker": MARKERS[n % len(MARKERS)]}
        for g, n in zip(groups, repeats(groups), strict=True)
    ]


def _shade(hue: str, n: int) -> tuple[float, ...]:
    """Return the hue itself for n = 0, then shades closer to white (odd n) and to black (even n)."""
    steps = (1 + n) // 2
    share, end = steps / (steps + 1), n % 2
    return tuple((1 - share) * c + share * end for c in to_rgb(hue))


def text_colour(background: tuple[float, ...]) -> str:
    """Return white for a dark background and black for a light one."""
    return "white" if np.dot(background, (0.299, 0.587, 0.114)) < 0.6 else "black"


def memory_lines(group: Group) -> list[tuple[str, Any]]:
    """Return each memory of a group with its line style."""
    return [(m, ANSWERS if m == group.inference else WORKING if m == "working" else FURTHER) for m in group.memories]


def line(ax: Axes, x: np.ndarray, seeds: np.ndarray, **look: Any) -> None:
    """Draw the mean over seeds [S, X], with a band of one standard deviation to either side if there are several."""
    log = ax.get_yscale() == "log"  # of the logarithms then, or the band could reach below zero
    mean, std = mean_std(np.log10(np.where(seeds > 0, seeds, np.nan)) if log else seeds)  # 0 has no place there
    middle, low, high = (10**v if log else v for v in (mean, mean - std, mean + std))
    ax.plot(x, middle, **look)
    if len(seeds) > 1:
        ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)


def mean_std(seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (of a sample) over the first axis; the deviation of a single seed is 0."""
    return seeds.mean(0), seeds.std(0, ddof=1) if len(seeds) > 1 else np.zeros(seeds.shape[1:])


def percent_scale(ax: Axes) -> None:
    """Set limits in whole twenties around everything drawn on these axes and on those that share the scale."""
    drawn = [other.dataLim for other in ax.get_shared_y_axes().get_siblings(ax) if other.has_data()]
    low, high = min(d.y0 for d in drawn), max(d.y1 for d in drawn)
    ax.set_ylim(20 * np.floor(max(min(low, 99), 0) / 20), min(20 * np.ceil(max(high, 1) / 20), 101))


def legend(figure: Figure, handles: Sequence[Any], title: str | None = None) -> None:
    """Put a legend above the axes, in as many columns as fit; a legend of many rows makes the figure taller."""
    room = int(figure.get_figwidth() * 18) - 8  # letters
    for h in handles:
        h.set_label(textwrap.fill(h.get_label(), room))
    longest = max(len(h.get_label().split("\n")[0]) for h in handles)
    columns = min(len(handles), max(1, int(figure.get_figwidth() * 18 / (longest + 8))))
    rows = -(-len(handles) // columns) + sum(h.get_label().count("\n") for h in handles)
    figure.set_figheight(figure.get_figheight() + ROW * max(0, rows - ROWS))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, title=title, title_fontsize=6)


def legend_lines(groups: Sequence[Group]) -> list[Line2D]:
    """Return the entries of a legend: a line for each group, then line styles if a group has several memories."""
    lines = [Line2D([], [], label=g.label, **look) for g, look in zip(groups, looks(groups), strict=True)]
    several = [g for g in groups if len(g.memories) > 1]
    named: dict[str, Any] = {}
    for group in several:
        for memory, line_style in memory_lines(group):
            named.setdefault(f"{memory.replace('_', '-')} memory", line_style)
    if len(several) < len(groups) and several:  # the other groups use a memory for inference that is dashed for these
        named = {"memory used for inference": ANSWERS} | {k: v for k, v in named.items() if v != ANSWERS}
    return lines + [Line2D([], [], label=name, linestyle=ls, color="0.4") for name, ls in named.items()]


def seeds_note(groups: Sequence[Group]) -> str:
    """Return how many seeds the means are over, in words; an empty string for single seeds."""
    counts = {len(g.records) for g in groups}
    if counts == {1}:
        return ""
    few, many = min(counts), max(counts)
    return f"mean ± std of {few if few == many else f'{few} to {many}'} seeds"
