"""Accuracy matrices as heatmaps: test set of each task (x) after learning each task (y)."""

import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure


def heatmaps(panels: Sequence[tuple[str, np.ndarray]], columns: int | None = None, size: float = 2.5) -> Figure:
    """Draw titled matrices R[t, i] on one scale, `size` inches wide each, in `columns` columns (default: one row)."""
    columns = min(columns or len(panels), len(panels))
    rows = -(-len(panels) // columns)
    titles = [textwrap.fill(title, int(13 * size)) for title, _ in panels]
    lines = 1 + max(title.count("\n") for title in titles)
    figure = Figure(figsize=(0.6 + size * columns, (size + 0.25 + 0.15 * lines) * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    colours = matplotlib.colormaps["viridis"]
    for ax, title, (_, r) in zip(axes.flat, titles, panels, strict=False):
        image = ax.imshow(r, cmap=colours, vmin=0, vmax=100)
        if r.size <= 100 and r.shape[1] <= 10:  # more numbers would be too small to read
            for (t, i), value in np.ndenumerate(r):
                ax.text(i, t, f"{value:.0f}", ha="center", va="center", fontsize=8 if r.shape[1] <= 6 else 5,
                        color="black" if value > 55 else "white")  # fmt: skip
        ax.set_xticks(*ticks(r.shape[1]), fontsize=8)
        ax.set_yticks(*(ticks(r.shape[0]) if len(r) > 1 else ([0], ["all"])), fontsize=8)
        ax.set_title(f"{title}\nmean at the end {r[-1].mean():.1f} %", fontsize=9)
        ax.set_xlabel("test set of task", fontsize=8)
    for ax in axes[:, 0]:
        ax.set_ylabel("after learning task", fontsize=8)
    figure.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.85 / rows, pad=0.01)
    return figure


def ticks(tasks: int) -> tuple[list[int], list[str]]:
    """Return positions and labels of ticks: every task of a few, every fifth of many."""
    at = [i for i in range(tasks) if tasks <= 10 or i == 0 or (i + 1) % 5 == 0]
    return at, [f"T{i + 1}" for i in at]
