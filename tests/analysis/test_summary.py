import io
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from rich.console import Console

from scommer.analysis import figures, measures
from scommer.analysis.figures.heatmap import heatmaps
from scommer.analysis.summary import forgotten_table, matrix_table, measures_table, side_by_side, summary_table
from scommer.engine.evaluate import summary
from scommer.runs.record import Record

RNG = np.random.default_rng(0)


def made(matrices, *, method="scommer", inference="long_term", kind="class-il", name="run") -> Record:
    """A record of these matrices {memory: {setting: R}}, with the measures that follow from them."""
    tasks = len(next(iter(next(iter(matrices.values())).values()))[0])
    untrained = np.full(tasks, 10.0)
    scores = {m: {s: summary(np.array(r), untrained, kind) for s, r in by.items()} for m, by in matrices.items()}
    return Record(
        name=name, experiment=replace(EXPERIMENT, method=method), settings={}, stream=replace(STREAM, kind=kind),
        inference=inference, matrices=matrices, untrained={"class_il": untrained.tolist()}, scores=scores,
        code=CODE, versions={}, device=DEVICE, times=TIMES,
    )  # fmt: skip


TWO = made(
    {
        "working": {"class_il": [[91.0, 13.0], [22.0, 81.5]], "task_il": [[96.0, 47.0], [72.0, 97.0]]},
        "long_term": {"class_il": [[88.125, 11.0], [63.25, 74.5]], "task_il": [[95.5, 51.0], [92.0, 94.0]]},
    }
)


def long(tasks, kind="class-il"):
    """A run of SCoMMER with the longest names that it has."""
    memories = ("working", "long_term", "long_term/working", "long_term/recalibrated")
    settings = ("class_il", "task_il") if kind == "class-il" else ("class_il",)
    matrices = {m: {s: RNG.uniform(0, 100, (tasks, tasks)).tolist() for s in settings} for m in memories}
    return made(matrices, kind=kind, name="gcil-longtail-scommer-500-seed12-abcdef")


def rendered(table, width=80):
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(table)
    return console.export_text()


def cells(table, width=80):
    """The rows of a rendered table, as lists of words between the rulers."""
    lines = rendered(table, width).replace("┃", "│").splitlines()
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]


# --- tables


def test_the_summary_shows_every_memory_setting_and_measure():
    head, *rows = cells(summary_table(TWO))
    assert head == ["memory", "setting", "accuracy", "forgetting", "BWT", "FWT"]
    assert rows == [
        ["working", "Class-IL", "51.75", "69.00", "-69.00", "3.00"],
        ["working", "Task-IL", "84.50", "24.00", "-24.00", "37.00"],
        ["long_term", "Class-IL", "68.88", "24.88", "-24.88", "1.00"],
        ["long_term", "Task-IL", "93.00", "3.50", "-3.50", "41.00"],
    ]
    assert "run, in %" in rendered(summary_table(TWO))


def test_the_memory_that_answers_is_marked():
    table = summary_table(TWO)
    assert [row.style for row in table.rows] == ["", "", "bold", "bold"]


def test_the_summary_of_gcil_has_the_nested_mean_and_the_last():
    record = made({"working": {"class_il": [[40.0, 30.0], [20.0, 50.0]]}}, inference="working", kind="gcil")
    head, row = cells(summary_table(record))
    assert head[:4] == ["memory", "nested mean", "last", "forgetting"]
    assert row[:3] == ["working", "35.00", "50.00"]


def test_the_summary_of_training_at_once_has_the_accuracy_alone():
    record = made({"working": {"class_il": [[90.0, 60.0, 30.0]]}}, inference="working")
    assert cells(summary_table(record)) == [["memory", "accuracy"], ["working", "60.00"]]


def test_the_matrix_is_shown_row_by_row():
    assert cells(matrix_table(TWO, "long_term")) == [
        ["after", "T1", "T2"], ["T1", "88.1", "11.0"], ["T2", "63.2", "74.5"],
    ]  # fmt: skip
    text = rendered(matrix_table(TWO, "working", "task_il"))
    assert "working, Task-IL" in text
    assert all(number in text for number in ("96.0", "47.0", "72.0", "97.0"))


def test_the_matrix_of_training_at_once_is_one_row_after_all():
    record = made({"working": {"class_il": [[90.0, 60.0, 30.0]]}}, inference="working")
    assert cells(matrix_table(record, "working"))[1:] == [["all", "90.0", "60.0", "30.0"]]


def test_methods_side_by_side():
    records = [
        TWO,
        made({"working": {"class_il": [[90.0, 60.0]]}}, method="joint", inference="working"),
        made({"working": {"class_il": [[90.0, 0.0], [10.0, 80.0]], "task_il": [[99.0, 50.0], [60.0, 90.0]]}},
             method="er", inference="working"),
    ]  # fmt: skip
    assert cells(side_by_side(records)) == [
        ["method", "memory", "Class-IL", "Task-IL", "forgetting"],
        ["scommer", "working", "51.75", "84.50", "69.00"],
        ["scommer", "long_term", "68.88", "93.00", "24.88"],
        ["joint", "working", "75.00", "–", "–"],
        ["er", "working", "45.00", "75.00", "80.00"],
    ]
    assert "s-digits" in rendered(side_by_side(records))


def test_side_by_side_leaves_out_other_statistics_of_a_memory():
    assert [row[1] for row in cells(side_by_side([long(3)]))[1:]] == ["working", "long_term"]


TABLES = {
    "summary": summary_table,
    "matrix": lambda record: matrix_table(record, "long_term/recalibrated"),
    "side by side": lambda record: side_by_side([record, record]),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_of_five_tasks_fit_into_80_columns_with_nothing_cut(table):
    record = long(5)
    text = rendered(table(record), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.split() == rendered(table(record), 200).split()


def test_the_summary_of_gcil_fits_into_80_columns_with_nothing_cut():
    record = long(20, "gcil")
    text = rendered(summary_table(record), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


@pytest.mark.parametrize(
    "tasks",
    [
        10,
        20,
    ],
)
def test_every_number_of_a_long_stream_can_be_read_in_80_columns(tasks):
    record = long(tasks, "gcil")
    text = rendered(matrix_table(record, "working"), 80)
    assert max(map(len, text.splitlines())) <= 80
    for value in record.matrix("working").ravel():
        assert f"{value:.1f}" in text or f" {value:.0f} " in text


# --- heatmaps


def numbers(ax):
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in ax.texts}


def test_a_heatmap_has_a_panel_for_each_memory_and_one_scale():
    figure = heatmaps([("Working", TWO.matrix("working")), ("Long-term", TWO.matrix("long_term"))])
    first, second, scale = figure.axes
    assert first.get_title().splitlines()[0] == "Working"
    assert second.get_title().splitlines() == ["Long-term", "mean at the end 68.9 %"]  # (63.25 + 74.5) / 2
    assert scale.get_ylabel() == "accuracy (%)"
    for ax, memory in ((first, "working"), (second, "long_term")):
        (image,) = ax.images
        assert np.array_equal(image.get_array(), TWO.matrix(memory))
        assert image.get_clim() == (0, 100)


def test_a_heatmap_has_each_number_in_its_place_as_in_the_papers_figure():
    """Test set of each task on the x-axis, after learning each task on the y-axis."""
    (ax, _) = heatmaps([("Long-term", TWO.matrix("long_term"))]).axes
    assert numbers(ax) == {(0, 0): "88", (0, 1): "11", (1, 0): "63", (1, 1): "74"}  # [after, test set]
    assert ax.get_xlabel() == "test set of task"
    assert ax.get_ylabel() == "after learning task"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["T1", "T2"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["T1", "T2"]
    assert ax.yaxis_inverted()  # the first task on top


def test_numbers_of_a_heatmap_stand_out_from_their_colour():
    """Dark text on light cells and light text on dark ones, judged by luminance."""
    (ax, _) = heatmaps([("Working", TWO.matrix("working"))]).axes
    (image,) = ax.images
    for (t, i), text in zip(np.ndindex(2, 2), ax.texts, strict=True):
        red, green, blue, _ = image.to_rgba(TWO.matrix("working"))[t, i]
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert text.get_color() == ("black" if luminance > 0.35 else "white")


def test_a_heatmap_of_many_tasks_has_no_numbers():
    (ax, _) = heatmaps([("GCIL", long(20, "gcil").matrix("working"))]).axes
    assert not ax.texts


@pytest.mark.parametrize("tasks", [5, 20])
def test_the_labels_of_a_heatmap_do_not_overlap(tasks):
    figure = heatmaps([("GCIL", long(tasks, "gcil").matrix("working"))])
    FigureCanvasAgg(figure).draw()
    ax = figure.axes[0]
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels if label.get_visible() and label.get_text()]
        assert len(boxes) >= 4
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_a_heatmap_of_training_at_once_does_not_speak_of_the_first_task():
    record = made({"working": {"class_il": [[90.0, 60.0, 30.0]]}}, inference="working")
    (ax, _) = heatmaps([("JOINT", record.matrix("working"))]).axes
    assert numbers(ax) == {(0, 0): "90", (0, 1): "60", (0, 2): "30"}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all"]


def test_figures_are_saved_as_png_and_svg(tmp_path):
    figure = heatmaps([("Working", TWO.matrix("working")), ("Long-term", TWO.matrix("long_term"))])
    figures.save(figure, tmp_path / "heat.png")
    with Image.open(tmp_path / "heat.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > picture.height > 200
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 20  # not blank
    figures.save(figure, tmp_path / "heat.svg")
    assert ElementTree.parse(tmp_path / "heat.svg").getroot().tag.endswith("svg")


def test_a_bias_of_any_size_is_shown_whole(make):
    record = make("scommer")
    p = record.arrays["class_probability/long_term"]
    last = record.stream.tasks[-1]
    p[:], p[last] = 0.25e-5, 0.5
    console = Console(width=80, file=io.StringIO())
    console.print(measures_table(record))
    written = console.file.getvalue()
    assert " 200000 " in written
    assert "…" not in written


def test_names_of_classes_are_shown_whole_and_as_they_are(make):
    record = make("er")
    long = "a very long name of a class [bold], longer than a line of a terminal is wide, and on it goes"
    record.stream.classes[:] = [long] * 6
    console = Console(width=80, file=io.StringIO(), markup=False)
    console.print(forgotten_table(record))
    written = console.file.getvalue()
    assert "…" not in written
    lost = measures.forgotten(record.arrays["class_accuracy/working"])
    assert f"{lost.max():.1f}" in written
    cells = [line.split("│")[1].strip() for line in written.splitlines() if line.startswith("│")]
    assert long.replace(" ", "") in "".join(cells).replace(" ", "")
