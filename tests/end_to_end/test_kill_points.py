"""A run killed or stopped at any point, of any method, is resumed to the same record, and no work is lost on the way.

What a killed process leaves is what was on the disk at that moment. So one run is enough to try every moment: its
folder is copied before each change of a file, and each copy is resumed.
"""

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from disk import Disk, Event
from tiny import Result, assert_same, experiment, result, stream

from scommer import provenance
from scommer.engine.learner import Learner
from scommer.errors import RunError, UsageError
from scommer.methods import METHODS, Batch, TaskImages
from scommer.runs import checkpoint
from scommer.runs.experiment import Experiment
from scommer.runs.runner import Interrupted, run, run_together

OPTIONS: dict[str, Any] = {"device": "cpu", "weights": True}
EVERY_STEP = {"checkpoint_seconds": 0}
IMPORTANT = ("checkpoint-", "weights", "arrays", "record")  # changes of these files matter to every method
COHORT = [("scommer", 0), ("er", 0), ("er", 1)]


@pytest.fixture(autouse=True)
def _identity_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask git once, not for each of some hundred records."""
    monkeypatch.setattr("scommer.provenance._git", cache(provenance._git))


def results(out: Path) -> dict[str, Result]:
    return {folder.name: result(folder) for folder in out.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Result]:
    """Return a function from a method to the result of its run left alone."""
    done: dict[str, Result] = {}

    def whole(method: str) -> Result:
        if method not in done:
            out = tmp_path_factory.mktemp(method)
            run(experiment(method), out=out, **OPTIONS)
            (done[method],) = results(out).values()
        return done[method]

    return whole


def copies(out: Path, experiments: list[Experiment], wanted: Callable[[Event], bool]) -> list[Path]:
    """Run experiments; return copies of their folder as it was before each wanted change of a file, and at the end."""
    made: list[Path] = []

    def copy() -> None:
        made.append(out.with_name(f"{out.name}-{len(made)}"))
        shutil.copytree(out, made[-1], copy_function=shutil.copyfile, symlinks=True)

    def before(event: Event) -> None:
        if out.exists() and wanted(event):
            patch.undo()  # copying changes files, too
            copy()
            Disk(patch, out, before)

    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, out, before)
        run_together(experiments, out=out, **OPTIONS, **EVERY_STEP)
    copy()
    return made


def is_safe(folder: Path) -> bool:
    """Return whether there is an intact checkpoint, or all of the results."""
    try:
        record, weights = result(folder)
    except (UsageError, OSError):
        with_damage: list[str] = []
        return checkpoint.load(folder, with_damage.append) is not None and not with_damage
    return bool(record.arrays) and bool(weights)


def assert_clean(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {".lock", "record.json", "arrays.npz", "weights.safetensors"}


def resume_all(killed: list[Path], cohort: list[Experiment], expected: dict[str, Result]) -> None:
    for out in killed:
        run_together(cohort, out=out, **OPTIONS)
        found = results(out)
        assert found.keys() == expected.keys()
        for name in found:
            assert_same(found[name], expected[name])
            assert_clean(out / name)


def assert_nothing_is_lost(killed: list[Path], runs: int) -> None:
    """Check that whatever has a checkpoint once has one, or its results, at all later times."""
    begun: set[str] = set()
    for out in killed:
        begun |= {path.parent.name for path in out.glob("*/checkpoint-*")}
        assert all(is_safe(out / name) for name in begun), sorted(out.rglob("*"))
    assert len(begun) == runs


@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_when_it_changes_a_file_is_resumed(
    tmp_path: Path, method: str, whole: Callable[[str], Result]
) -> None:
    """In the middle of an epoch, of the evaluation after a task, and while the results are written."""
    one, expected = experiment(method), whole(method)
    killed = copies(tmp_path / "run", [one], lambda event: event[1].startswith(IMPORTANT))
    assert_nothing_is_lost(killed, 1)
    resume_all(killed[5:-7:10] + killed[-7:], [one], {expected[0].name: expected})


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_at_any_change_of_a_file_is_resumed(
    tmp_path: Path, method: str, whole: Callable[[str], Result]
) -> None:
    one, expected = experiment(method), whole(method)
    killed = copies(tmp_path / "run", [one], lambda event: True)
    assert len(killed) > 60
    assert_nothing_is_lost(killed, 1)
    resume_all(killed, [one], {expected[0].name: expected})


@pytest.mark.parametrize("part", [pytest.param(slice(None), marks=pytest.mark.long), slice(-1, 0, -9)])
def test_a_cohort_killed_when_it_changes_a_file_is_resumed(tmp_path: Path, part: slice) -> None:
    cohort = [experiment(method, seed) for method, seed in COHORT]
    run_together(cohort, out=tmp_path / "whole", **OPTIONS)
    expected = results(tmp_path / "whole")
    killed = copies(tmp_path / "run", cohort, lambda event: event[1].startswith(IMPORTANT))
    assert_nothing_is_lost(killed, 3)
    resume_all(killed[part], cohort, expected)


# --- signals


def during(patch: pytest.MonkeyPatch, out: Path, method: str, point: str, act: Callable[[], None]) -> None:
    """Do something once: in the middle of a step, of the evaluation, of a hook, or before a file is changed."""
    left = [act]

    def once(*_: Any) -> None:
        if left:
            left.pop()()

    def around(where: Any, name: str, last: int) -> None:
        """Act in the last of several calls."""
        call, calls = getattr(where, name), [0]

        def wrapped(*arguments: Any, **options: Any) -> Any:
            found = call(*arguments, **options)
            calls[0] += 1
            if calls[0] == last:
                once()
            return found

        patch.setattr(where, name, wrapped)

    if point == "step":
        around(Learner, "_recallable", 4)
    elif point == "evaluation":
        around(Learner, "_evaluate", 2)
    elif point.startswith("after_"):
        around(METHODS[method], point, 1)
    else:
        Disk(patch, out, lambda event: once() if event[1].startswith(point) else None)


IN_STEPS = ("step", "evaluation", "after_task", "after_epoch")
AT_THE_END = ("weights", "arrays", "record")
STOPS = [(method, point) for method in METHODS for point in (*IN_STEPS[:3], "checkpoint-")]


def term() -> None:
    signal.raise_signal(signal.SIGTERM)


def term_twice() -> None:
    term()
    term()


def no_reader() -> None:
    raise BrokenPipeError


def leave() -> None:
    sys.exit(1)


def stopped(
    out: Path, method: str, point: str, act: Callable[[], None], error: type[BaseException] | None, **more: Any
) -> str:
    """Run a method until something stops it; return the message."""
    with pytest.MonkeyPatch.context() as patch:
        during(patch, out, method, point, act)
        if error is None:
            run(experiment(method), out=out, **OPTIONS, **more)
            return ""
        with pytest.raises(error) as e:
            run(experiment(method), out=out, **OPTIONS, **more)
        return str(e.value)


def assert_resumed(out: Path, method: str, expected: Result) -> None:
    run(experiment(method), out=out, **OPTIONS)
    (folder,) = out.iterdir()
    assert_same(result(folder), expected)
    assert_clean(folder)


@pytest.mark.parametrize(("method", "point"), STOPS)
def test_a_stop_at_any_point_saves_everything(
    tmp_path: Path, method: str, point: str, whole: Callable[[str], Result]
) -> None:
    frequent = EVERY_STEP if point == "checkpoint-" else {}
    assert "run the same command to resume" in stopped(tmp_path, method, point, term, Interrupted, **frequent)
    assert is_safe(next(tmp_path.iterdir()))
    assert_resumed(tmp_path, method, whole(method))


@pytest.mark.parametrize("point", AT_THE_END)
def test_a_stop_while_results_are_written_comes_too_late(
    tmp_path: Path, point: str, whole: Callable[[str], Result]
) -> None:
    stopped(tmp_path, "er", point, term, None)
    assert_clean(next(tmp_path.iterdir()))
    assert_resumed(tmp_path, "er", whole("er"))


@pytest.mark.parametrize("point", [*IN_STEPS, "checkpoint-", *AT_THE_END])
def test_a_second_signal_stops_at_once_and_loses_no_checkpoint(
    tmp_path: Path, point: str, whole: Callable[[str], Result]
) -> None:
    stopped(tmp_path, "scommer", "step", term, Interrupted)
    stopped(tmp_path, "scommer", point, term_twice, KeyboardInterrupt, **EVERY_STEP)
    assert is_safe(next(tmp_path.iterdir()))
    assert_resumed(tmp_path, "scommer", whole("scommer"))


@pytest.mark.parametrize("act", [no_reader, leave])
@pytest.mark.parametrize("point", IN_STEPS)
def test_half_a_step_is_never_saved(
    tmp_path: Path, point: str, act: Callable[[], None], whole: Callable[[str], Result]
) -> None:
    """A method of a plugin may print, and the reader of its output may be gone."""
    assert "run the same command" in stopped(tmp_path, "scommer", point, act, RunError, **EVERY_STEP)
    assert_resumed(tmp_path, "scommer", whole("scommer"))


@pytest.mark.parametrize("point", IN_STEPS)
def test_half_a_step_of_one_run_does_not_keep_the_others_from_being_saved(tmp_path: Path, point: str) -> None:
    cohort = [experiment("er", seed) for seed in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        during(patch, tmp_path, "er", point, no_reader)
        with pytest.raises(Interrupted):
            run_together(cohort, out=tmp_path, **OPTIONS)
    assert len({path.parent for path in tmp_path.glob("*/checkpoint-*")}) == 2
    run_together(cohort, out=tmp_path, **OPTIONS)
    run_together(cohort, out=tmp_path / "whole", **OPTIONS)
    for name, expected in results(tmp_path / "whole").items():
        assert_same(result(tmp_path / name), expected)


# --- evaluation


@pytest.mark.parametrize("task", [0, 1, 2])
@pytest.mark.parametrize("method", ["scommer", "ewc", "lwf", "joint"])
def test_an_evaluation_that_is_abandoned_is_repeated(
    tmp_path: Path, method: str, task: int, whole: Callable[[str], Result]
) -> None:
    """By a signal in the middle of a network's pass: before the first task, and after each."""
    task = min(task, 1 if method == "joint" else 2)
    calls: list[int] = []

    def stop(learner: Learner, view: Any, call: Any = Learner._evaluate) -> Any:
        if learner.task + bool(learner.untrained) == task and not calls:
            hook = view.memory.network.head.register_forward_pre_hook(lambda *_: term())
            try:
                return call(learner, view)
            finally:
                hook.remove()
                calls.append(learner.task)
        return call(learner, view)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "_evaluate", stop)
        patch.setattr("scommer.engine.evaluate.BATCH", 4)
        with pytest.raises(Interrupted, match="run the same command to resume"):
            run(experiment(method), out=tmp_path, **OPTIONS)
    (folder,) = tmp_path.iterdir()
    assert is_safe(folder)
    _, values = checkpoint.load(folder, print) or ({}, {})
    assert values["ended"] == (task > 0)
    assert sum(values["scores"].values()) == bool(task) + len(whole(method)[0].matrices) * max(0, task - 1)
    assert_resumed(tmp_path, method, whole(method))


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("last", [1, 4])
def test_a_pass_over_the_images_at_the_end_of_a_task_is_abandoned_and_repeated(
    tmp_path: Path, last: int, task: int
) -> None:
    """EWC's Fisher information: by a signal before one of six batches, of which it must not begin another."""
    one = experiment("ewc")
    one = replace(one, settings={**one.settings, "gamma": 0.5, "momentum": 0.9})
    begun: list[int] = []
    draw = TaskImages.batches

    def batches(images: TaskImages, size: int) -> Iterator[Batch]:
        own = stream().tasks[task].train.tolist() == images.index.tolist()
        for batch in draw(images, 5):
            begun.append(own)
            if own and sum(begun) == last:
                term()
            yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskImages, "batches", lambda images, _: draw(images, 5))
        run(one, out=tmp_path / "whole", **OPTIONS)
        patch.setattr(TaskImages, "batches", batches)
        with pytest.raises(Interrupted, match=f"stopped at task {task + 1}, epoch 2: .* the same command to resume"):
            run(one, out=tmp_path / "stopped", **OPTIONS)
        assert len(begun) == 6 * task + last
        (folder,) = (tmp_path / "stopped").iterdir()
        _, values = checkpoint.load(folder, print) or ({}, {})
        assert (values["task"], values["epoch"], values["ended"]) == (task, 2, False)
        patch.setattr(TaskImages, "batches", lambda images, _: draw(images, 5))
        run(one, out=tmp_path / "stopped", **OPTIONS)
    (expected,) = results(tmp_path / "whole").values()
    assert_same(result(folder), expected)
