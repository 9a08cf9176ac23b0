"""Clocks that are set back or ahead: no times below 0, no checkpoint missing, nothing lost, nothing that never ends."""

import json
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny import QUICK, assert_same, experiment, result, stream

from scommer import LifelongClassifier
from scommer.engine.learner import Learner, Moment
from scommer.runs.progress import PlainWatch, Watch
from scommer.runs.record import Record
from scommer.runs.runner import Interrupted, run

OPTIONS: dict[str, Any] = {"device": "cpu"}


class Clock:
    """Every reading is later than the one before by `tick` seconds, which may be below 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tick: float, start: float = 1e6) -> None:
        self.now, self.tick = start, tick
        monkeypatch.setattr(time, "monotonic", self.read)
        monkeypatch.setattr(time, "time", self.read)
        monkeypatch.setattr("scommer.provenance.now", lambda: datetime.fromtimestamp(self.read(), UTC).isoformat())

    def read(self) -> float:
        self.now += self.tick
        return self.now


class Saved(Watch):
    """Counts checkpoints, and stops the run in its second task."""

    def __init__(self, out: Path, stop: bool) -> None:
        self.out, self.stop, self.seen = out, stop, set[str]()

    def moment(self, learner: Learner, moment: Moment) -> None:
        self.seen |= {path.name for path in self.out.rglob("checkpoint-*")}
        if self.stop and learner.task == 1:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("tick", [-1000.0, -1e-3, 0.0, 1000.0])
def test_a_run_under_any_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick: float) -> None:
    run(experiment("er"), out=tmp_path / "whole", weights=True, **OPTIONS)
    Clock(monkeypatch, tick)
    watch = Saved(tmp_path / "runs", stop=True)
    with pytest.raises(Interrupted):
        run(experiment("er"), out=tmp_path / "runs", weights=True, watch=watch, **OPTIONS)
    assert bool(watch.seen) == bool(tick)  # a clock that was set back does not delay checkpoints
    progress = json.loads(next(tmp_path.glob("runs/*/progress.json")).read_text())
    assert 0 < progress["saved"] <= progress["steps"][0] < progress["steps"][1]
    record = run(experiment("er"), out=tmp_path / "runs", weights=True, **OPTIONS)
    assert record.times.seconds >= 0
    assert record.step_ms >= 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert Record.load(folder).times == record.times  # it is accepted when read
    assert_same(result(folder), result(tmp_path / "whole" / folder.name))


def test_a_clock_set_back_once_delays_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0)

    class SetBack(Saved):
        def moment(self, learner: Learner, moment: Moment) -> None:
            super().moment(learner, moment)
            if learner.steps[0] == 3:
                clock.now -= 3600
                clock.tick = 1.0

    watch = SetBack(tmp_path, stop=False)
    run(experiment("er"), out=tmp_path, watch=watch, checkpoint_seconds=30, **OPTIONS)
    assert watch.seen


def test_the_progress_under_a_clock_that_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(record=True, width=200, file=Path(os.devnull).open("w"))  # noqa: SIM115
    Clock(monkeypatch, -20.0)
    monkeypatch.setattr("scommer.runs.progress.SLOW_STEPS", 1)
    run(experiment("er"), watch=PlainWatch(console), **OPTIONS)
    console.file.close()
    lines = console.export_text().splitlines()
    assert any("measuring the speed" in line for line in lines)
    assert not any("-" in line.split("loss")[1] for line in lines if "loss" in line)  # neither time nor speed


def test_the_time_limit_of_a_run_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still never reaches the limit, and the run ends all the same."""
    Clock(monkeypatch, 0.0)
    assert run(experiment("er"), minutes=1, **OPTIONS).times.seconds == 0


def test_a_classifier_under_a_clock_that_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stream().data
    Clock(monkeypatch, -5.0)
    model = LifelongClassifier(4, method="er", buffer=8, settings=QUICK, device="cpu")
    model.partial_fit(data.train_images, data.train_labels, layout="NCHW")
    assert model.history_[0]["seconds"] == 0


@pytest.mark.parametrize("age", [-1e6, 1e6])
def test_what_belongs_to_a_finished_run_does_not_depend_on_times(tmp_path: Path, age: float) -> None:
    """Checkpoints of training again for weights are kept, others removed, whatever the clock was then."""
    one = experiment("er")
    with pytest.raises(Interrupted):
        run(one, out=tmp_path, watch=Saved(tmp_path, stop=True), **OPTIONS)
    (left,) = tmp_path.rglob("checkpoint-*")
    content = left.read_bytes()
    run(one, out=tmp_path, **OPTIONS)
    left.write_bytes(content)  # as if killed before it was removed
    os.utime(left, (time.time() - age,) * 2)
    run(one, out=tmp_path, **OPTIONS)
    assert not left.exists()
    with pytest.raises(Interrupted):
        run(one, out=tmp_path, watch=Saved(tmp_path, stop=True), weights=True, **OPTIONS)
    (left,) = tmp_path.rglob("checkpoint-*")
    os.utime(left, (time.time() - age,) * 2)
    run(one, out=tmp_path, **OPTIONS)
    assert left.exists()
