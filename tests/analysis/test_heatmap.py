"""Heatmaps of accuracy matrices: numbers, colours, labels and files."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from scommer.analysis import figures
from scommer.analysis.figures.heatmap import heatmaps

WORKING = np.array([[91.0, 13.0], [22.0, 81.5]])
LONG_TERM = np.array([[88.125, 11.0], [63.25, 74.5]])
AT_ONCE = np.array([[90.0, 60.0, 30.0]])


def random(tasks: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 100, (tasks, tasks))


def numbers(ax: Axes) -> dict[tuple[int, int], str]:
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in ax.texts}


def test_a_heatmap_has_a_panel_for_each_matrix_and_one_scale() -> None:
    figure = heatmaps([("Working", WORKING), ("Long-term", LONG_TERM)])
    first, second, scale = figure.axes
    assert first.get_title().splitlines()[0] == "Working"
    assert second.get_title().splitlines() == ["Long-term", "mean at the end 68.9 %"]  # (63.25 + 74.5) / 2
    assert scale.get_ylabel() == "accuracy (%)"
    for ax, r in ((first, WORKING), (second, LONG_TERM)):
        (image,) = ax.images
        assert np.array_equal(image.get_array(), r)
        assert image.get_clim() == (0, 100)


def test_numbers_are_placed_as_in_the_papers_figure() -> None:
    """Test set of each task on the x-axis, after learning each task on the y-axis."""
    (ax, _) = heatmaps([("Long-term", LONG_TERM)]).axes
    assert numbers(ax) == {(0, 0): "88", (0, 1): "11", (1, 0): "63", (1, 1): "74"}  # [after, test set]
    assert ax.get_xlabel() == "test set of task"
    assert ax.get_ylabel() == "after learning task"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["T1", "T2"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["T1", "T2"]
    assert ax.yaxis_inverted()  # the first task on top


def test_numbers_contrast_with_their_cell() -> None:
    """Dark text on light cells and light text on dark ones, judged by luminance."""
    (ax, _) = heatmaps([("Working", WORKING)]).axes
    (image,) = ax.images
    for (t, i), text in zip(np.ndindex(2, 2), ax.texts, strict=True):
        red, green, blue, _ = image.to_rgba(WORKING)[t, i]
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert text.get_color() == ("black" if luminance > 0.35 else "white")


def test_a_heatmap_of_many_tasks_has_no_numbers() -> None:
    (ax, _) = heatmaps([("GCIL", random(20))]).axes
    assert not ax.texts


@pytest.mark.parametrize("tasks", [5, 20])
def test_labels_do_not_overlap(tasks: int) -> None:
    figure = heatmaps([("GCIL", random(tasks))])
    FigureCanvasAgg(figure).draw()
    ax = figure.axes[0]
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels if label.get_visible() and label.get_text()]
        assert len(boxes) >= 4
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_the_row_of_joint_training_is_named_all() -> None:
    (ax, _) = heatmaps([("JOINT", AT_ONCE)]).axes
    assert numbers(ax) == {(0, 0): "90", (0, 1): "60", (0, 2): "30"}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all"]


def test_figures_are_saved_as_png_and_svg(tmp_path: Path) -> None:
    figure = heatmaps([("Working", WORKING), ("Long-term", LONG_TERM)])
    figures.save(figure, tmp_path / "heat.png")
    with Image.open(tmp_path / "heat.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > picture.height > 200
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 20  # not blank
    figures.save(figure, tmp_path / "heat.svg")
    assert ElementTree.parse(tmp_path / "heat.svg").getroot().tag.endswith("svg")
