"""Tables of runs against numbers worked out by hand, and in the width of a terminal."""

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES
from rich.console import Console

from scommer.analysis import measures
from scommer.analysis.groups import Group
from scommer.analysis.summary import all_tables, forgotten_table, matrix_table, method_table, seeds_table, short_tables
from scommer.analysis.table import Table, as_rich
from scommer.engine.evaluate import summary
from scommer.runs.record import Record

RNG = np.random.default_rng(0)
Matrices = dict[str, dict[str, list[list[float]]]]


def made(
    matrices: Matrices, *, method: str = "scommer", inference: str = "long_term", kind: str = "class-il",
    name: str = "run", seed: int = 0,
) -> Record:  # fmt: skip
    """A record of these matrices {memory: {setting: R}}, with the scores that follow from them."""
    tasks = len(next(iter(next(iter(matrices.values())).values()))[0])
    untrained = np.full(tasks, 10.0)
    scores = {m: {s: summary(np.array(r), untrained, kind) for s, r in by.items()} for m, by in matrices.items()}
    return Record(
        name=name, experiment=replace(EXPERIMENT, method=method, seed=seed), settings={},
        stream=replace(STREAM, kind=kind), inference=inference, matrices=matrices,
        untrained={"class_il": untrained.tolist()}, scores=scores, code=CODE, versions={}, device=DEVICE, times=TIMES,
    )  # fmt: skip


TWO = made(
    {
        "working": {"class_il": [[91.0, 13.0], [22.0, 81.5]], "task_il": [[96.0, 47.0], [72.0, 97.0]]},
        "long_term": {"class_il": [[88.125, 11.0], [63.25, 74.5]], "task_il": [[95.5, 51.0], [92.0, 94.0]]},
    }
)
JOINT = made({"working": {"class_il": [[90.0, 60.0, 30.0]]}}, method="joint", inference="working")


def long(tasks: int, kind: str = "class-il") -> Record:
    """A run of SCoMMER with the longest names that it has."""
    memories = ("working", "long_term", "long_term/working", "long_term/recalibrated")
    settings = ("class_il", "task_il") if kind == "class-il" else ("class_il",)
    matrices = {m: {s: RNG.uniform(0, 100, (tasks, tasks)).tolist() for s in settings} for m in memories}
    return made(matrices, kind=kind, name="gcil-longtail-scommer-500-seed12-abcdef")


def scores(record: Record) -> Table:
    return short_tables(record)[1]


def matrix(record: Record, memory: str | None = None, setting: str = "class_il") -> Table:
    return matrix_table(Group("label", (record,)), memory, setting, terminal=True)


def rendered(table: Table, width: int = 80) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), markup=False)
    console.print(as_rich(table))
    return console.export_text()


def cells(table: Table) -> list[list[str]]:
    return [[c.name for c in table.columns], *([c.text for c in row.cells] for row in table.rows)]


# --- one run


def test_the_scores_of_a_run_are_by_memory_and_setting() -> None:
    head, *rows = cells(scores(TWO))
    assert head == ["memory", "setting", "accuracy", "forgetting", "BWT", "FWT"]
    assert rows == [
        ["working", "Class-IL", "51.75", "69.00", "-69.00", "3.00"],
        ["working", "Task-IL", "84.50", "24.00", "-24.00", "37.00"],
        ["long_term", "Class-IL", "68.88", "24.88", "-24.88", "1.00"],
        ["long_term", "Task-IL", "93.00", "3.50", "-3.50", "41.00"],
    ]
    assert scores(TWO).title == "run, in %"


def test_the_memory_that_answers_is_in_bold() -> None:
    assert [row.strong for row in scores(TWO).rows] == [False, False, True, True]


def test_the_scores_of_gcil_have_the_nested_mean_and_the_last() -> None:
    record = made({"working": {"class_il": [[40.0, 30.0], [20.0, 50.0]]}}, inference="working", kind="gcil")
    head, row = cells(scores(record))
    assert head[:4] == ["memory", "nested mean", "last", "forgetting"]
    assert row[:3] == ["working", "35.00", "50.00"]


def test_the_scores_of_joint_training_are_the_accuracy_alone() -> None:
    assert cells(scores(JOINT)) == [["memory", "accuracy"], ["working", "60.00"]]


def test_a_matrix_has_a_row_after_each_task() -> None:
    assert cells(matrix(TWO)) == [["after", "T1", "T2"], ["T1", "88.1", "11.0"], ["T2", "63.2", "74.5"]]
    working = matrix(TWO, "working", "task_il")
    assert "working, Task-IL" in working.title
    assert cells(working)[1:] == [["T1", "96.0", "47.0"], ["T2", "72.0", "97.0"]]


def test_tables_of_several_seeds_have_their_means() -> None:
    one = made({"working": {"class_il": [[90.0, 10.0], [20.0, 80.0]]}}, inference="working", method="er")
    other = made({"working": {"class_il": [[70.0, 30.0], [40.0, 50.0]]}}, inference="working", method="er", seed=1)
    group = Group("ER", (one, other))
    assert cells(matrix_table(group))[1:] == [["T1", "80.0", "20.0"], ["T2", "30.0", "65.0"]]
    # Class one loses more in the first seed alone, class zero in the mean; class two gains in the second seed.
    one.arrays = {"class_accuracy/working": np.array([[80.0, 90.0, 30.0, 0.0], [60.0, 60.0, 20.0, 50.0]])}
    other.arrays = {"class_accuracy/working": np.array([[90.0, 50.0, 40.0, 0.0], [50.0, 50.0, 70.0, 60.0]])}
    table = forgotten_table([group])
    assert table is not None
    assert [[c.text for c in row.cells] for row in table.rows] == [
        ["zero", "ER", "85.0 ± 7.1", "55.0 ± 7.1", "30.0 ± 14.1", "66.7 ± 47.1"],
        ["one", "ER", "70.0 ± 28.3", "55.0 ± 7.1", "15.0 ± 21.2", "25.0 ± 35.4"],
        ["two", "ER", "35.0 ± 7.1", "45.0 ± 35.4", "5.0 ± 7.1", "8.3 ± 11.8"],
    ]


def test_the_matrix_of_joint_training_is_one_row() -> None:
    assert cells(matrix(JOINT))[1:] == [["all", "90.0", "60.0", "30.0"]]


def test_show_has_a_matrix_for_each_setting_and_run_the_first() -> None:
    assert [t.title.split(":")[0] for t in all_tables(TWO)] == [
        "long_term, Class-IL",
        "long_term, Task-IL",
        "run, in %",
    ]
    assert [t.title.split(":")[0] for t in short_tables(TWO)] == ["long_term, Class-IL", "run, in %"]


def test_a_large_bias_is_shown_whole(make: Callable[..., Record]) -> None:
    record = make("scommer")
    p = record.arrays["class_probability/long_term"]
    p[:], p[record.stream.tasks[-1]] = 0.25e-5, 0.5
    written = "".join(map(rendered, all_tables(record)))
    assert " 200000 " in written
    assert "…" not in written


def test_names_of_classes_are_shown_whole_and_unchanged(make: Callable[..., Record]) -> None:
    record = make("er")
    name = "a very long name of a class [bold], longer than a line of a terminal is wide, which continues below"
    record.stream.classes[:] = [name] * 6
    written = rendered(all_tables(record)[-1])
    assert "…" not in written
    lost = measures.forgotten(record.arrays["class_accuracy/working"])
    assert f"{lost.max():.1f}" in written
    first = [line.split("│")[1].strip() for line in written.splitlines() if line.startswith("│")]
    assert name.replace(" ", "") in "".join(first).replace(" ", "")


# --- several runs


def test_methods_side_by_side() -> None:
    er = {"working": {"class_il": [[90.0, 0.0], [10.0, 80.0]], "task_il": [[99.0, 50.0], [60.0, 90.0]]}}
    joint = made({"working": {"class_il": [[90.0, 60.0]]}}, method="joint", inference="working")
    table = method_table([TWO, joint, made(er, method="er", inference="working")])
    assert cells(table) == [
        ["method", "memory", "Class-IL", "Task-IL", "forgetting"],
        ["scommer", "working", "51.75", "84.50", "69.00"],
        ["scommer", "long_term", "68.88", "93.00", "24.88"],
        ["joint", "working", "75.00", "–", "–"],
        ["er", "working", "45.00", "75.00", "80.00"],
    ]
    assert "s-digits" in table.title


def test_methods_side_by_side_leave_out_other_statistics_of_a_memory() -> None:
    assert [row[1] for row in cells(method_table([long(3)]))[1:]] == ["working", "long_term"]


def test_seeds_are_averaged() -> None:
    runs = [
        made({"working": {"class_il": [[90.0, 0.0], [10.0, end]]}}, method="er", inference="working", seed=seed)
        for seed, end in ((0, 80.0), (4, 84.0))
    ]
    table = seeds_table(runs)
    assert table.title == "er on s-digits, seeds 0, 4 (%)"
    head, row = cells(table)
    assert head == ["memory", "setting", "accuracy", "forgetting"]
    assert row == ["working", "Class-IL", "46.00 ± 1.41", "80.00 ± 0.00"]  # √2 is the deviation of 45 and 47


# --- the width of a terminal

TABLES: dict[str, Callable[[Record], Table]] = {
    "scores": scores,
    "matrix": lambda record: matrix(record, "long_term/recalibrated"),
    "side by side": lambda record: method_table([record, record]),
    "seeds": lambda record: seeds_table([record, record]),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_of_five_tasks_fit_into_80_columns(table: Callable[[Record], Table]) -> None:
    record = long(5)
    text = rendered(table(record), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.split() == rendered(table(record), 200).split()


def test_the_scores_of_gcil_fit_into_80_columns() -> None:
    text = rendered(scores(long(20, "gcil")), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


@pytest.mark.parametrize("tasks", [10, 20])
def test_every_number_of_a_long_stream_is_readable_in_80_columns(tasks: int) -> None:
    record = long(tasks, "gcil")
    text = rendered(matrix(record, "working"), 80)
    assert max(map(len, text.splitlines())) <= 80
    for value in record.matrix("working").ravel():
        assert f"{value:.1f}" in text or f" {value:.0f} " in text
