"""A table is filled run by run, over several sittings."""

from pathlib import Path
from typing import Any

import pytest

from scommer import Experiment, run
from scommer.analysis import tables
from scommer.record import Record, find
from scommer.reproduce import run_missing, step_ms, wanted
from scommer.running import TimeUp

QUICK = {"epochs": 1, "width": 4}


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of three cells on the digits, two of them drawn from the same runs."""
    rows = [
        {"method": "sgd", "settings": QUICK, "values": [[20.0, 1.0], [75.0, 1.0]]},
        {"method": "er", "buffer": 20, "settings": QUICK, "values": [[80.0, 1.0], [95.0, 1.0]]},
    ]
    numbers: dict[str, Any] = {
        "main": {"source": "made up", "columns": ["s-digits/class_il", "s-digits/task_il"], "rows": rows}
    }
    monkeypatch.setattr(tables, "paper_numbers", lambda: numbers)


def test_the_papers_tables_need_these_runs() -> None:
    """Counted by hand from the tables: cells of a stream share a run."""
    assert {t: len(tables.experiments(t, [0, 1, 2])) for t in tables.TABLES} == {
        "main": 3 * 4 * (2 + 4 + 4),  # four streams; JOINT and SGD, four methods with each buffer
        "memories": 3 * 4 * 2,
        "ablation": 3 * 5,
        "sensitivity": 3 * 27,
    }


@pytest.mark.usefixtures("small_table")
def test_missing_runs_are_run_and_done_ones_are_not(tmp_path: Path) -> None:
    run(Experiment("s-digits", "sgd", seed=1, settings=QUICK), out=tmp_path)
    todo = wanted("main", [0, 1], tmp_path)
    assert [(w.experiment.method, w.experiment.seed, w.done) for w in todo] == [
        ("sgd", 0, False), ("er", 0, False), ("sgd", 1, True), ("er", 1, False),
    ]  # fmt: skip
    assert all(w.steps == 44 for w in todo)  # 1,437 training images in five tasks of 32 a step
    assert run_missing(todo, tmp_path, together=2, device="cpu") == 3
    assert len(find(tmp_path)) == 4
    again = wanted("main", [0, 1], tmp_path)
    assert all(w.done for w in again)
    assert run_missing(again, tmp_path) == 0
    records = [Record.load(folder) for folder in find(tmp_path)]
    assert sorted(r.times["together"] for r in records) == [1, 1, 2, 2]
    each = sorted(1000 * r.times["seconds"] / r.times["steps"] / r.times["together"] for r in records)
    assert step_ms(tmp_path) == pytest.approx((each[1] + each[2]) / 2)
    assert step_ms(tmp_path / "nothing") is None


@pytest.mark.usefixtures("small_table")
def test_a_sitting_that_is_over_saves_and_the_next_goes_on(tmp_path: Path) -> None:
    todo = wanted("main", [0], tmp_path)
    said: list[str] = []
    assert run_missing(todo, tmp_path, minutes=0.0005, device="cpu", say=said.append) == 0
    assert len(said) == 1
    assert said[0].startswith("time is up")
    assert list(tmp_path.rglob("checkpoint-*"))
    assert run_missing(wanted("main", [0], tmp_path), tmp_path, device="cpu") == 2
    alone = run(Experiment("s-digits", "er", 20, settings=QUICK))
    (record,) = (r for r in (tables.Record.load(f) for f in find(tmp_path)) if r.experiment["method"] == "er")
    assert record.matrices == alone.matrices


def test_time_is_up_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    with pytest.raises(TimeUp, match="run the same command to go on"):
        run(Experiment("s-digits", "sgd", settings=QUICK), out=tmp_path, minutes=0.0005)
    assert list(tmp_path.rglob("checkpoint-*"))
    assert run(Experiment("s-digits", "sgd", settings=QUICK), out=tmp_path).times["steps"] == 44


def test_a_run_that_fails_alone_does_not_keep_the_next_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"method": "sgd", "settings": {**QUICK, "lr": 1e30}, "values": [[20.0, 1.0]]},
        {"method": "sgd", "settings": QUICK, "values": [[20.0, 1.0]]},
    ]
    numbers: dict[str, Any] = {"main": {"source": "made up", "columns": ["s-digits/class_il"], "rows": rows}}
    monkeypatch.setattr(tables, "paper_numbers", lambda: numbers)
    said: list[str] = []
    assert run_missing(wanted("main", [0], tmp_path), tmp_path, together=1, device="cpu", say=said.append) == 1
    assert len(said) == 1
    assert "the loss became" in said[0]
