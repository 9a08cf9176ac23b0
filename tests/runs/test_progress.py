"""Progress while a run trains."""

import re
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from scommer import Experiment, run
from scommer.methods.scommer import SCoMMER
from scommer.runs import progress
from scommer.runs.progress import LiveWatch, Pace, PlainWatch, clock, watch_for
from scommer.runs.runner import run_together


def test_a_terminal_shows_a_bar_with_task_epoch_loss_speed_and_time_left() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=24)
    watch = watch_for(console)
    assert isinstance(watch, LiveWatch)
    watch.pace.every = 0  # every step
    run(Experiment("s-digits", "sgd", settings={"epochs": 1, "width": 4}), watch=watch)
    for part in ("sgd", r"task 5/5", r"epoch 1/1", r"loss \d\.\d{3}", r"[\d,]+ img/s", r"\d:\d\d left"):
        assert re.search(part, screen.getvalue()), part


def test_a_file_gets_plain_lines() -> None:
    lines = StringIO()
    watch = watch_for(Console(file=lines, width=80))
    assert isinstance(watch, PlainWatch)
    watch.pace.every = 0
    run(Experiment("s-digits", "sgd", settings={"epochs": 1, "width": 4}), watch=watch)
    assert "\x1b" not in lines.getvalue()
    assert lines.getvalue().count("after task") == 5
    assert "img/s" in lines.getvalue()


def test_lines_about_one_of_several_runs_say_which() -> None:
    lines = StringIO()
    watch = PlainWatch(Console(file=lines, width=80))
    watch.pace.every = 0
    settings = {"epochs": 1, "width": 4}
    run_together([Experiment("s-digits", "sgd", seed=seed, settings=settings) for seed in (3, 4)], watch=watch)
    first, *others = lines.getvalue().splitlines()
    assert "seed3" in first
    assert len(others) > 5
    assert all(line.startswith("SGD, seed 3: ") for line in others)


def test_time_is_shown_as_on_a_clock() -> None:
    assert [clock(s) for s in (0, 59.6, 61, 3600, 3725)] == ["0:00", "1:00", "1:01", "1:00:00", "1:02:05"]
    assert [clock(3600 * h) for h in (48, 49, 5325)] == ["48:00:00", "2 days", "222 days"]


def learner(device: str = "cpu", steps: int = 0) -> Any:
    """Return a stand-in for a learner, with a hundred steps."""
    return SimpleNamespace(
        device=torch.device(device), steps=(steps, 100), batch_size=32, place=(1, 1), phases=[0],
        epochs=1, mean_loss=lambda: 0.5,
    )  # fmt: skip


def test_the_time_left_does_not_include_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    pace = Pace(10.0)
    pace.begin(learner(), 1)
    for done in range(6):
        now[0] += 20  # the first of them are slow
        assert not pace.due(learner(steps=done))
    now[0] += 5
    assert pace.due(learner(steps=15))  # 2 a second, and 85 to go
    assert pace.describe(learner(steps=15)).endswith("64 img/s  0:42 left")
    now[0] += 5
    assert not pace.due(learner(steps=25))


def test_the_line_of_several_runs_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    pace = Pace(1.0)
    many = learner()
    many.steps, many.method, many.seed = (0, 99_999), SCoMMER(), 12
    pace.begin(many, 8)
    for done in (5, 6):
        many.steps = (done, 99_999)
        pace.due(many)
        now[0] += 1
    line = pace.describe(many)
    assert "SCoMMER, seed 12: task 1/1" in line
    assert line.endswith(" left")
    assert len(f"scommer ×8 {line}") < 76  # and some of the bar


def test_on_a_gpu_the_user_is_told_that_kernels_are_compiled() -> None:
    plan: Any = SimpleNamespace(name="a-run", experiment=SimpleNamespace(method="er"))
    for kind in (LiveWatch, PlainWatch):
        for device in ("cpu", "cuda"):
            shown = StringIO()
            watch = kind(Console(file=shown, width=120, force_terminal=kind is LiveWatch))
            watch.begin(plan, learner(device), 1)
            watch.end()
            assert ("compiling kernels" in shown.getvalue()) == (device == "cuda")
