"""The results document, against numbers computed by hand."""

from dataclasses import replace
from typing import Any

import pytest
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES as ANY

from scommer.analysis.selection import changes
from scommer.paper.documents.results import document
from scommer.runs import presets
from scommer.runs.facts import Times
from scommer.runs.record import Record
from scommer.runs.settings import as_dict

TIMES = replace(ANY, seconds=156.0, steps=78000)


def record(seed: int, long_term: float, *, method: str = "scommer", times: Times = TIMES, **settings: Any) -> Record:
    """On S-CIFAR10 with a buffer of 200; Task-IL 20 points above, the other choices of statistics 1 and 4 below."""
    resolved = as_dict(*presets.resolve("s-cifar10", method, 200, "official", settings))
    views = {"working": long_term - 10}
    if method == "scommer":
        others = [s for s in ("replay", "working", "recalibrated") if s != resolved["statistics"]]
        views |= {
            "long_term": long_term,
            f"long_term/{others[0]}": long_term - 1,
            f"long_term/{others[1]}": long_term - 4,
        }
    scores = {view: {"class_il": {"accuracy": a}, "task_il": {"accuracy": a + 20}} for view, a in views.items()}
    return Record(
        "r", replace(EXPERIMENT, stream="s-cifar10", method=method, buffer=200, seed=seed), resolved, STREAM,
        "long_term" if method == "scommer" else "working", {}, {}, scores,
        replace(CODE, commit="0123456789"), {}, replace(DEVICE, name="a GPU", precision="bf16"), times,
    )  # fmt: skip


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_choices_of_statistics_are_means_over_seeds() -> None:
    text = document(
        [record(1, 68.0), record(0, 66.0), record(0, 50.0, statistics="working"), record(0, 45.0, method="er")], ""
    )
    _, table = text.split("## Batch-norm statistics")
    table = table.split("## Every run")[0]
    head, _, *rows = lines(table, "|")
    assert head.endswith("| replay | working | recalibrated |")
    assert rows == [  # √2 is the deviation of 66 and 68
        "| s-cifar10 | scommer | 200 |  | Class-IL | 2 | 67.00 ± 1.41 | 66.00 ± 1.41 | 63.00 ± 1.41 |",
        "| s-cifar10 | scommer | 200 |  | Task-IL | 2 | 87.00 ± 1.41 | 86.00 ± 1.41 | 83.00 ± 1.41 |",
        "| s-cifar10 | scommer | 200 | statistics=working | Class-IL | 1 | 49.00 | 50.00 | 46.00 |",
        "| s-cifar10 | scommer | 200 | statistics=working | Task-IL | 1 | 69.00 | 70.00 | 66.00 |",
    ]


def test_statistics_of_a_memory_need_no_setting_of_its_method() -> None:
    """CLS-ER has no such setting: its views alone say that the memory itself has those of replay."""
    stable = record(0, 40.0, method="er", lr=0.05)
    ends = {"working": 30.0, "stable": 40.0, "stable/working": 37.0}
    stable.scores = {view: {"class_il": {"accuracy": a}} for view, a in ends.items()}
    stable.inference = "stable"
    table = document([stable], "").split("## Batch-norm statistics")[1].split("## Every run")[0]
    assert lines(table, "| s-") == ["| s-cifar10 | er | 200 | lr=0.05 | Class-IL | 1 | 40.00 | 37.00 | – |"]


def test_a_memory_with_all_choices_scored_apart_has_these() -> None:
    apart = record(0, 40.0, method="er", lr=0.05)
    ends = {"working": 30.0, "x": 1.0, "x/replay": 41.0, "x/working": 42.0, "x/recalibrated": 43.0}
    apart.scores = {view: {"class_il": {"accuracy": a}} for view, a in ends.items()}
    table = document([apart], "").split("## Batch-norm statistics")[1].split("## Every run")[0]
    assert lines(table, "| s-") == ["| s-cifar10 | er | 200 | lr=0.05 | Class-IL | 1 | 41.00 | 42.00 | 43.00 |"]


def test_choices_of_statistics_are_compared_on_the_same_images() -> None:
    """With `mirrored`, all of them have mirror images, and only `single` has none."""
    ends = {"working": 30.0, "long_term": 50.0, "long_term/single": 48.0, "long_term/working": 47.0}
    mirrored = record(0, 50.0, mirrored=True)
    mirrored.scores = {view: {"class_il": {"accuracy": a}} for view, a in ends.items()}
    table = document([mirrored], "").split("## Batch-norm statistics")[1].split("## Every run")[0]
    (line,) = lines(table, "| s-")
    assert line.endswith("| 50.00 | 47.00 | – |")


def test_a_view_of_no_memory_has_no_choice_of_statistics() -> None:
    """A plugin may name its memories as it likes."""
    other = record(0, 40.0, method="er", lr=0.05)
    other.scores = {view: {"class_il": {"accuracy": 40.0}} for view in ("working", "head/replay")}
    table = document([other], "").split("## Batch-norm statistics")[1].split("## Every run")[0]
    assert lines(table, "| s-") == []


def test_every_run_has_its_commit_device_and_speed() -> None:
    pair = record(1, 68.0, times=replace(TIMES, seconds=468.0, together=4), r=0.9)
    pair.code = replace(CODE, commit=None, dirty=True, earlier=["an older hash"])
    table = document([record(0, 67.1), pair, record(2, 66.0)], "").split("## Every run")[1]
    assert lines(table, "| s-")[:2] == [
        "| s-cifar10 | scommer | 200 |  | 0 | 67.10 | 87.10 | 0123456 | a GPU | bf16 | 2.6 | – | 2.00 |",
        "| s-cifar10 | scommer | 200 |  | 2 | 66.00 | 86.00 | 0123456 | a GPU | bf16 | 2.6 | – | 2.00 |",
    ]
    (other,) = lines(table, "| s-cifar10 | scommer | 200 | r=0.9 | 1 ")
    assert "| unknown, with changes, and earlier code |" in other
    assert other.endswith("| 7.8 | 4 | 1.50 |")


def test_the_papers_tables_follow_the_reading_and_show_what_has_runs() -> None:
    text = document([record(s, a) for s, a in enumerate((67.0, 67.5))], "## Read so\n\nBy hand.\n")
    assert text.index("By hand.") < text.index("### `main`: Table 1")
    main = text.split("### `main`")[1].split("### `memories`")[0]
    assert "2 of 64 numbers have runs" in main
    assert (
        lines(main, "| s")[0] == "| scommer, 200 | s-cifar10 | Class-IL | 67.25 ± 0.35 | 2 | 69.19 ± 0.61 | -1.94 | * |"
    )
    assert len(lines(main, "|")) == 2 + 2
    nothing = document([], "")
    assert "0 of 7 numbers have runs." in nothing
    assert not lines(nothing.split("## Batch-norm")[0], "|")


@pytest.mark.parametrize(
    ("change", "text"),
    [({}, ""), ({"r": 0.5}, ""), ({"r": 0.25, "active": [0.9, 0.9, 0.9, 0.5]}, "active=[0.9, 0.9, 0.9, 0.5], r=0.25")],
)  # 0.5 is the preset's
def test_changes_are_against_the_preset(change: dict[str, Any], text: str) -> None:
    assert changes(record(0, 67.0, **change)) == text
    held_out = record(0, 67.0, **change)
    held_out.experiment = replace(held_out.experiment, validation=0.1)
    assert changes(held_out).endswith("validation=0.1")
