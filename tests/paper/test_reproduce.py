"""The runs of a table: which are missing, which run together, and over several sittings."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from scommer import Experiment, run
from scommer.engine.learner import Learner
from scommer.errors import UsageError
from scommer.paper import tables
from scommer.paper.reproduce import Wanted, cohorts, pace, run_missing, wanted
from scommer.runs.experiment import Plan
from scommer.runs.options import RunOptions
from scommer.runs.progress import Watch
from scommer.runs.record import Record, find
from scommer.runs.runner import TimeUp

QUICK = {"epochs": 1, "width": 4}
CPU = RunOptions(device="cpu")


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small table on the digits, whose two columns share their runs."""
    rows = [
        {"method": "sgd", "settings": QUICK, "values": [[20.0, 1.0], [75.0, 1.0]]},
        {"method": "er", "buffer": 20, "settings": QUICK, "values": [[80.0, 1.0], [95.0, 1.0]]},
    ]
    numbers: dict[str, Any] = {
        "main": {"source": "made up", "columns": ["s-digits/class_il", "s-digits/task_il"], "rows": rows}
    }
    monkeypatch.setattr(tables, "paper_numbers", lambda: numbers)


def test_the_number_of_runs_that_each_table_needs() -> None:
    """Counted by hand from the tables: cells of a stream share a run."""
    assert {t: len(tables.experiments(t, [0, 1, 2])) for t in tables.TABLES} == {
        "main": 3 * 4 * (2 + 4 + 4),  # four streams; JOINT and SGD, four methods with each buffer
        "memories": 3 * 4 * 2,
        "ablation": 3 * 7,
        "sensitivity": 3 * 27,
        "variants": 3 * (2 * 2 + 11 + 2),  # both variants on two streams, eleven differences, two doubts
        "further": 3 * 6,  # two methods without replay, two with two buffers
        "plus": 3 * 4 * 2,
        "plus-ablation": 3 * 2 * 7,
    }


@pytest.mark.usefixtures("small_table")
def test_only_missing_runs_are_run(tmp_path: Path) -> None:
    run(Experiment("s-digits", "sgd", seed=1, settings=QUICK), out=tmp_path)
    todo = wanted("main", [0, 1], tmp_path)
    assert [(w.experiment.method, w.experiment.seed, w.done) for w in todo] == [
        ("sgd", 0, False), ("er", 0, False), ("sgd", 1, True), ("er", 1, False),
    ]  # fmt: skip
    assert all(w.steps == 44 for w in todo)  # 1,437 training images in five tasks of 32 a step
    assert run_missing(todo, tmp_path, CPU, together=2) == 3
    assert len(find(tmp_path)) == 4
    again = wanted("main", [0, 1], tmp_path)
    assert all(w.done for w in again)
    assert run_missing(again, tmp_path, CPU) == 0
    records = [Record.load(folder) for folder in find(tmp_path)]
    assert sorted(r.times.together or 0 for r in records) == [1, 1, 2, 2]
    here = records[0].device.name
    assert (found := pace(tmp_path, here))
    assert found[1] == here
    for method in ("sgd", "er"):
        own = [r.times for r in records if r.experiment.method == method]
        each = [1000 * t.seconds / t.steps / t.together for t in own if t.together]
        assert found[0](method) == pytest.approx(sum(each) / 2)
    assert pace(tmp_path / "nothing", here) is None


def test_the_pace_is_that_of_this_device_or_of_the_one_with_most_runs(tmp_path: Path) -> None:
    for i, (device, seconds) in enumerate((("slow", 8.0), ("fast", 1.0), ("fast", 3.0))):
        record = run(Experiment("s-digits", "sgd", settings=QUICK))
        record.device = replace(record.device, name=device)
        record.times = replace(record.times, seconds=seconds, steps=1000)
        (folder := tmp_path / str(i)).mkdir()
        record.save(folder)
    found = {here: pace(tmp_path, here) for here in ("slow", "unknown")}
    assert {here: (of("sgd"), device) for here, (of, device) in found.items()} == {  # type: ignore[misc]
        "slow": (8.0, "slow"), "unknown": (2.0, "fast"),
    }  # fmt: skip
    quick = run(Experiment("s-digits", "er", settings=QUICK))
    quick.device = replace(quick.device, name="fast")
    quick.times = replace(quick.times, seconds=0.5, steps=1000)
    (folder := tmp_path / "er").mkdir()
    quick.save(folder)
    assert (found := pace(tmp_path, "fast"))
    assert [found[0](method) for method in ("sgd", "er", "joint")] == [2.0, 0.5, 1.0]


@pytest.mark.usefixtures("small_table")
def test_a_sitting_that_ends_saves_and_the_next_resumes(tmp_path: Path) -> None:
    todo = wanted("main", [0], tmp_path)
    printed: list[str] = []

    class Slow(Watch):
        def moment(self, learner: Learner, moment: str) -> None:
            time.sleep(0.1)

    options = replace(CPU, minutes=0.03, watch=Slow())  # less than 44 steps take, and more than it takes to start
    assert run_missing(todo, tmp_path, options, print_line=printed.append) == 0
    assert len(printed) == 1
    assert printed[0].startswith("time is up")
    assert list(tmp_path.rglob("checkpoint-*"))
    begun = wanted("main", [0], tmp_path)
    saved = [json.loads(path.read_text())["saved"] for path in tmp_path.rglob("progress.json")]
    assert sorted(44 - w.left for w in begun) == sorted(saved)
    assert max(saved) > 0
    progress = next(tmp_path.rglob("progress.json"))
    whole = json.loads(progress.read_text())
    for content, left in (
        (json.dumps(whole | {"saved": 30}), 14),
        ("{", 44),
        ("[]", 44),
        ('{"saved": "?"}', 44),
        ("{}", 44),
    ):
        progress.write_text(content)  # damaged, it counts as nothing saved; the run still resumes from its checkpoint
        assert left in [w.left for w in wanted("main", [0], tmp_path)]
    assert run_missing(begun, tmp_path, CPU) == 2
    alone = run(Experiment("s-digits", "er", 20, settings=QUICK))
    (record,) = (r for r in (tables.Record.load(f) for f in find(tmp_path)) if r.experiment.method == "er")
    assert record.matrices == alone.matrices


@pytest.mark.usefixtures("small_table")
def test_a_part_of_a_table_can_be_chosen(tmp_path: Path) -> None:
    def chosen(**part: Any) -> list[tuple[str, int]]:
        return [(w.experiment.method, w.experiment.seed) for w in wanted("main", [0, 1], tmp_path, **part)]

    assert chosen(methods=["er"]) == chosen(buffers=[20]) == [("er", 0), ("er", 1)]  # SGD has no buffer
    assert chosen(streams=["s-digits"], methods=["er", "sgd"]) == chosen()
    assert run_missing(wanted("main", [1], tmp_path, methods=["er"]), tmp_path, CPU) == 1
    (record,) = (Record.load(folder) for folder in find(tmp_path))
    assert (record.experiment.method, record.experiment.seed) == ("er", 1)
    with pytest.raises(UsageError, match="sgd has no buffer"):
        chosen(methods=["sgd"], buffers=[20])
    for part in ({"methods": ["der++"]}, {"streams": ["s-cifar10"]}):
        with pytest.raises(UsageError, match="for this part of the table"):
            chosen(**part)
    with pytest.raises(UsageError, match="'200': known: 20, none"):  # a similar number is no suggestion
        chosen(buffers=[200])


def made(*lengths: tuple[int, int]) -> list[Wanted]:
    """Runs of these steps, total and left, with different seeds."""
    return [Wanted(Experiment("s-digits", seed=i), left == 0, n, left) for i, (n, left) in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "together", "expected"),
    [
        # as in the main table: 78,000 and 78,100, 30,350 and 30,550 count as equal
        ([(78000, 78000), (30350, 30350), (78100, 78100), (30550, 30550)], 2, [[0, 2], [1, 3]]),
        ([(78, 78), (30, 30), (30, 30), (78, 0), (30, 30), (78, 78)], 3, [[0, 5, 1], [2, 4]]),  # no place stays free
        ([(78, 78), (78, 78), (78, 40), (30, 30), (78, 40)], 2, [[2, 4], [0, 1], [3]]),  # started runs come first
        ([(78, 78), (78, 30), (30, 30)], 2, [[1, 2], [0]]),  # by the steps left, not the total
        ([(78, 0), (30, 0)], 2, []),
    ],
)
def test_runs_of_about_equal_length_run_together(
    lengths: list[tuple[int, int]], together: int, expected: list[list[int]]
) -> None:
    assert [[w.experiment.seed for w in cohort] for cohort in cohorts(made(*lengths), together)] == expected


def test_each_cohort_runs_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = {**QUICK, "epochs": 2}
    rows = [
        {"method": m, "buffer": 20, "settings": s, "values": [[20.0]]} for m in ("er", "der++") for s in (QUICK, longer)
    ]
    numbers: dict[str, Any] = {"main": {"source": "made up", "columns": ["s-digits/class_il"], "rows": rows}}
    monkeypatch.setattr(tables, "paper_numbers", lambda: numbers)

    class Begun(Watch):
        seen: ClassVar[list[tuple[int, int]]] = []

        def begin(self, plan: Plan, learner: Learner, together: int) -> None:
            self.seen.append((learner.steps[1], together))

    assert run_missing(wanted("main", [0], tmp_path), tmp_path, replace(CPU, watch=Begun()), together=2) == 4
    assert Begun.seen == [(44, 2), (88, 2)]


def test_a_run_that_is_out_of_time_resumes(tmp_path: Path) -> None:
    with pytest.raises(TimeUp, match="run the same command to resume"):
        run(Experiment("s-digits", "sgd", settings=QUICK), out=tmp_path, minutes=0.0005)
    assert list(tmp_path.rglob("checkpoint-*"))
    assert run(Experiment("s-digits", "sgd", settings=QUICK), out=tmp_path).times.steps == 44


def test_a_run_that_fails_does_not_stop_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"method": "sgd", "settings": {**QUICK, "lr": 1e30}, "values": [[20.0, 1.0]]},
        {"method": "sgd", "settings": QUICK, "values": [[20.0, 1.0]]},
    ]
    numbers: dict[str, Any] = {"main": {"source": "made up", "columns": ["s-digits/class_il"], "rows": rows}}
    monkeypatch.setattr(tables, "paper_numbers", lambda: numbers)
    printed: list[str] = []
    assert run_missing(wanted("main", [0], tmp_path), tmp_path, CPU, together=1, print_line=printed.append) == 1
    assert len(printed) == 1
    assert "the loss became" in printed[0]
