"""A table as a figure: what is drawn is what the entries say."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from calling import call
from PIL import Image

from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.paper.table_figure import figure, margin
from scommer.paper.tables import Entry

THREE = Entry("er, 200", "s-cifar10", "class_il", 60.0, 1.0, (61.0, 63.0, 65.0))
ONE = Entry("sgd", "s-cifar10", "class_il", 20.0, None, (19.5,))
OTHER = Entry("sgd", "s-cifar100", "task_il", 40.0, 0.5, (42.0,))
THEIRS = Entry("sgd, by its authors", "s-cifar10", "class_il", 20.0, 1.0, (19.5,), "an article")
EMPTY = Entry("joint", "s-cifar10", "class_il", 92.0, 0.1)


def test_the_interval_is_students() -> None:
    # t(0.975, 2) = 4.302653, from a printed table
    assert margin(THREE) == pytest.approx(4.302653 * statistics.stdev(THREE.ours) / math.sqrt(3), rel=1e-6)
    assert math.isnan(margin(ONE))


def test_each_cell_is_drawn_in_its_panel_and_row() -> None:
    made = figure([THREE, ONE, OTHER, THEIRS, EMPTY])
    first, second = (ax for ax in made.axes if ax.has_data())
    assert [first.get_title(), second.get_title()] == ["s-cifar10, Class-IL", "s-cifar100, Task-IL"]
    assert [t.get_text() for t in first.get_yticklabels()] == ["er, 200", "sgd"]  # none without runs, none of authors
    dots = [
        (float(line.get_xdata()[0]), int(line.get_ydata()[0]), line.get_markerfacecolor() == "white")
        for line in first.lines
        if line.get_marker() == "o"
    ]
    assert dots == [(3.0, 0, False), (-0.5, 1, True)]  # hollow: one seed
    (bar,) = first.patches  # of the entry with a deviation
    assert (bar.get_x(), bar.get_width()) == (-2.0, 4.0)
    (whiskers,) = first.collections
    assert [float(x) for x, _ in whiskers.get_segments()[0]] == pytest.approx([3 - margin(THREE), 3 + margin(THREE)])
    assert not first.texts  # 3 is less than two of our own deviations
    assert [t.get_text() for t in second.texts] == ["*"]


def test_a_row_has_the_colour_of_its_method() -> None:
    entries = [replace(THREE, row="working, 200", method="scommer"), replace(ONE, method="sgd")]
    dots = [line for line in figure(entries).axes[0].lines if line.get_marker() == "o"]
    assert [line.get_color() for line in dots] == [METHODS["scommer"].colour, METHODS["sgd"].colour]


def test_a_table_without_runs_cannot_be_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no runs"):
        figure([EMPTY])
    code, _, err = call(capsys, "table", "main", "--figure", str(tmp_path / "main.gif"))
    assert code == 2
    assert "ends in .png" in err


def test_the_command_writes_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    code, out, _ = call(capsys, "table", "ablation", "--figure", str(tmp_path / "new" / "ablation.png"))
    assert code == 0
    assert "ablation.png" in out.replace("\n", "")
    with Image.open(tmp_path / "new" / "ablation.png") as image:
        assert image.size[0] > 1000
