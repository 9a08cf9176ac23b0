"""What a sweep says about its runs while they go on."""

import json
import os
import time
from pathlib import Path

import pytest
from rich.console import Console

from scommer.runs.experiment import Experiment
from scommer.runs.record import Record
from scommer.sweeps.status import PlainSweep
from scommer.sweeps.todo import Wanted

RECORD = next((Path(__file__).parents[2] / "docs" / "records").glob("s-digits-er-*"))


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def write_progress(out: Path, name: str, done: int, at: float) -> None:
    (out / name).mkdir(exist_ok=True)
    facts = {
        "name": name,
        "steps": [done, 1000],
        "saved": 0,
        "task": 0,
        "epoch": 0,
        "tasks": 5,
        "epochs": 20,
        "scores": {},
    }
    path = out / name / "progress.json"
    path.write_text(json.dumps(facts))
    os.utime(path, (at, at))


@pytest.mark.parametrize("start", [0, 600])
def test_time_left_does_not_count_the_steps_in_which_kernels_are_compiled(
    start: int, tmp_path: Path, clock: Clock
) -> None:
    """Those after the start, also where runs are resumed."""
    wanted = [Wanted(Experiment("s-digits", seed=i), False, 1000, 1000 - start, f"run{i}") for i in range(2)]
    watch = PlainSweep(Console(quiet=True))
    watch.begin(wanted, tmp_path)
    watch.submitted([w.name for w in wanted])

    def counts_after(seconds: float, done: int) -> str:
        clock.now += seconds
        for w in wanted:
            write_progress(tmp_path, w.name, start + done, clock.now)
        watch.look()
        return watch.counts()

    assert "left" not in counts_after(100, 1)  # compiling
    assert "left" not in counts_after(10, 100)
    left = {0: "1:20", 600: "0:20"}[start]  # 800 or 200 steps at 10 a second
    assert counts_after(10, 200) == f"0 waiting, 2 running, 0 done; about {left} left"


def test_runs_that_end_at_once_also_tell_the_time_left(tmp_path: Path, clock: Clock) -> None:
    wanted = [Wanted(Experiment("s-digits", seed=i), False, 4, 4, f"run{i}") for i in range(4)]
    watch = PlainSweep(Console(quiet=True))
    watch.begin(wanted, tmp_path)
    watch.add([Wanted(Experiment("s-digits", seed=9), False, 4, 4, "run9")])
    record = Record.load(RECORD)
    texts = []
    for name in ("run0", "run1", "run2"):
        clock.now += 5
        watch.done(name, record)
        texts.append(watch.counts())
    assert ["left" in text for text in texts] == [False, True, True]
    assert texts[-1].endswith("; about 0:10 left")  # two of five, at 5 s each
