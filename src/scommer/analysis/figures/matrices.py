"""Accuracy matrices of several groups, as in Figure 3."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from scommer.analysis.figures.heatmap import heatmaps
from scommer.analysis.groups import Group


def figure(groups: Sequence[Group]) -> Figure:
    """Draw R[t, i] of the memory used for inference, the mean over seeds, in rows of at most three."""
    panels = []
    for group in groups:
        n = len(group.records)
        title = f"{group.label} ({n}\N{NO-BREAK SPACE}seeds)" if n > 1 else group.label
        panels.append((title, group.matrices().mean(0)))
    rows = -(-len(panels) // 3)
    return heatmaps(panels, columns=-(-len(panels) // rows), size=2.1)
