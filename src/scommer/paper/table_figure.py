"""A table of the paper as a figure: how far our numbers are from the paper's."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.stats import t as student

from scommer.analysis.figures import style
from scommer.analysis.summary import SETTINGS
from scommer.errors import UsageError
from scommer.paper.tables import Entry

ACROSS = 3  # panels side by side
ROW = 0.15  # height in inches
BAND = "0.85"


def margin(entry: Entry) -> float:
    """Return half of Student's 95 % interval of our mean, t(0.975, n-1) s / √n; NaN for one seed."""
    n = len(entry.ours)
    return float(student.ppf(0.975, n - 1)) * entry.std / math.sqrt(n) if n > 1 else math.nan


def figure(entries: Sequence[Entry]) -> Figure:
    """Draw ours minus the paper's in a panel for each stream and setting, with a row for each row of the table."""
    done = [e for e in entries if e.ours and not e.authors]
    if not done:
        raise UsageError("there are no runs of this table to draw: name their folder with --runs")
    rows = list(dict.fromkeys(e.row for e in done))
    panels = list(dict.fromkeys((e.stream, e.setting) for e in done))
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    with style.styled():
        made = Figure(figsize=(style.PAGE, 0.5 + down * (0.6 + ROW * len(rows))), layout="constrained")
        axes = made.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat
        for ax, (stream, setting) in zip(axes, panels, strict=False):
            ax.set_title(f"{stream}, {SETTINGS[setting]}")
            for e in done:
                if (e.stream, e.setting) == (stream, setting):
                    _draw(ax, rows.index(e.row), e)
            ax.axvline(0, color="0.4", linewidth=0.6, zorder=1)
            ax.grid(axis="x", color="0.92", linewidth=0.5, zorder=0)
            ax.set_yticks(range(len(rows)), [style.plain(r) for r in rows])
            ax.set_ylim(len(rows) - 0.4, -0.6)
            ax.margins(x=0.1)  # room for stars
        for ax in list(axes)[len(panels) :]:
            ax.set_axis_off()
        made.supxlabel("accuracy at the end, ours minus the paper's (points)", fontsize=7)
        style.legend(made, _legend())
    return made


def _draw(ax: Axes, y: int, e: Entry) -> None:
    hue = style.colour(e.method)
    if e.paper_std is not None:
        ax.barh(y, 4 * e.paper_std, 0.7, -2 * e.paper_std, color=BAND, zorder=2)
    half = margin(e)
    ax.errorbar(
        e.difference, y, xerr=None if math.isnan(half) else half, color=hue, marker="o", elinewidth=1, zorder=3,
        markerfacecolor="white" if math.isnan(half) else hue,
    )  # fmt: skip
    if e.misses:
        end = e.difference + np.copysign(0 if math.isnan(half) else half, e.difference)
        ax.annotate("*", (end, y), (5 if e.difference > 0 else -5, -2.5), textcoords="offset points",
                    ha="center", va="center", fontsize=8)  # fmt: skip


def _legend() -> list[Line2D | Patch]:
    dot = {"linestyle": "none", "marker": "o", "color": "0.4"}
    return [
        Line2D([], [], **dot, label="ours, mean of several seeds with its 95 % interval"),  # type: ignore[arg-type]
        Line2D([], [], **dot, markerfacecolor="white", label="ours, one seed"),  # type: ignore[arg-type]
        Patch(color=BAND, label="two of the paper's standard deviations to either side"),
        Line2D([], [], linestyle="none", marker="$*$", color="black", label="off by more than two standard deviations"),
    ]
