"""The history of a classifier stays small, and what happened long ago still counts."""

from pathlib import Path

import numpy as np
import pytest
from real_rows import XT, X, Y

from scommer import LifelongClassifier
from scommer.lifelong import history

NEWEST = 3


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "NEWEST", NEWEST)


def days(model: LifelongClassifier, classes: list[int]) -> LifelongClassifier:
    """Learn a few rows of one class a day."""
    for c in classes:
        rows = np.flatnonzero(np.equal(Y, c))[:20]
        model.partial_fit(X[rows], Y[rows])
    return model


def test_the_newest_tasks_are_described_and_all_are_counted(tmp_path: Path) -> None:
    model = days(LifelongClassifier(device="cpu"), [0, 1, 2, 3, 2, 3, 2])
    model.save(tmp_path / "model")
    for same in (model, LifelongClassifier.load(tmp_path / "model", device="cpu")):
        assert same.n_tasks_ == 7
        assert [task["classes"] for task in same.history_] == [[2], [3], [2]]
        assert same.seen_classes_.tolist() == [0, 1, 2, 3]
        assert set(same.predict(XT)) == {0, 1, 2, 3}
        days(same, [4])
        assert same.n_tasks_ == 8
        assert [task["classes"] for task in same.history_] == [[3], [2], [4]]
    model.forget(classes=[0, 2])
    model.save(tmp_path / "model")
    for same in (model, LifelongClassifier.load(tmp_path / "model", device="cpu")):
        assert same.seen_classes_.tolist() == [1, 3, 4]
        assert set(same.predict(XT)) == {1, 3, 4}
        assert same.n_tasks_ == 8
        assert [task["classes"] for task in same.history_] == [[3], [], [4]]


def test_what_is_learned_does_not_depend_on_how_many_tasks_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers are drawn by the number of tasks; known classes are those of all tasks."""
    order = [0, 1, 2, 3, 1, 2, 0]
    params = {"method": "scommer", "buffer": 20, "settings": {"epochs": 2}, "device": "cpu"}
    found = []
    for newest in (NEWEST, 1000):
        monkeypatch.setattr(history, "NEWEST", newest)
        model = days(LifelongClassifier(**params), order)
        found.append((model.predict_proba(XT), model.forget(classes=[1]).predict_proba(XT)))
    for short, full in zip(*found, strict=True):
        assert np.array_equal(short, full)


def test_a_file_does_not_grow_with_every_call(tmp_path: Path) -> None:
    model = days(LifelongClassifier(device="cpu"), [0, 1] * NEWEST)
    model.save(tmp_path / "model")
    before = (tmp_path / "model").stat().st_size
    days(model, [0, 1] * 20).save(tmp_path / "model")
    assert abs((tmp_path / "model").stat().st_size - before) < 100  # digits of numbers


def test_before_anything_is_learned() -> None:
    model = LifelongClassifier(classes=3)
    assert (model.n_tasks_, model.history_) == (0, [])
