"""Runs that are killed or stopped, fill the disk or meet another process lose nothing."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from scommer.data import load
from scommer.engine.learner import Learner, Moment
from scommer.runs.experiment import Experiment, Plan
from scommer.runs.progress import Watch
from scommer.runs.record import Record
from scommer.runs.runner import run, run_together

pytestmark = pytest.mark.long

RUN = [
    sys.executable, "-m", "scommer", "run", "s-digits", "--buffer", "20", "--epochs", "3", "--device", "cpu",
    "--set", "width=4", "--set", "warmup=1", "--save-weights", "--checkpoint-seconds", "0.05", "--out",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Handle signals as in a terminal, even if the tests run in the background or under nohup."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start(
    out: Path, seeds: tuple[int, ...] = (0,), plugin: Path | None = None, **options: object
) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*RUN, str(out), "--seeds", *map(str, seeds), *(["--plugin", str(plugin)] if plugin else [])],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )  # type: ignore[call-overload, no-any-return]


def checkpoints(out: Path) -> set[str]:
    return {p.name for p in out.rglob("checkpoint-*.safetensors")}


def wait_for_progress(process: subprocess.Popen[str], out: Path, before: set[str]) -> None:
    while process.poll() is None and not checkpoints(out) - before:
        time.sleep(0.01)


def result(out: Path) -> tuple[Record, bytes]:
    (path,) = out.rglob("record.json")
    return Record.load(path.parent), (path.parent / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, bytes]:
    out = tmp_path_factory.mktemp("whole")
    process = start(out)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert not checkpoints(out)  # a finished run keeps its record, not its checkpoints
    return result(out)


def assert_same(a: tuple[Record, bytes], b: tuple[Record, bytes]) -> None:
    for part in ("name", "experiment", "settings", "stream", "matrices", "untrained", "scores", "inference"):
        assert getattr(a[0], part) == getattr(b[0], part), part
    assert a[0].arrays.keys() == b[0].arrays.keys()
    for name in a[0].arrays:
        np.testing.assert_array_equal(a[0].arrays[name], b[0].arrays[name], err_msg=name)
    assert a[1] == b[1]  # every weight, bit for bit


def test_a_run_killed_again_and_again_ends_with_the_same_record(
    tmp_path: Path, uninterrupted: tuple[Record, bytes]
) -> None:
    when = random.Random(3)
    for kill in range(7):
        process = start(tmp_path)
        if kill % 3:  # as soon as it has saved something, or a little later: while it steps, saves or evaluates
            wait_for_progress(process, tmp_path, checkpoints(tmp_path))
            time.sleep(when.uniform(0, 0.15))
        else:  # at any moment of its start
            time.sleep(when.uniform(0, 3))
        process.kill()
        process.communicate()
    process = start(tmp_path)
    process.communicate(timeout=200)
    assert_same(result(tmp_path), uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_says_how_to_resume_and_resumes(
    tmp_path: Path, uninterrupted: tuple[Record, bytes], number: signal.Signals
) -> None:
    process = start(tmp_path)
    wait_for_progress(process, tmp_path, set())
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to resume" in output
    assert "Traceback" not in output
    again = start(tmp_path)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert "resuming" in output
    assert_same(result(tmp_path), uninterrupted)


# A plugin that says when a function is called, and pauses it until signals have been sent.
PAUSE = """
import pathlib, time
import {module} as module

def paused(*arguments, call=module.{function}, **options):
    if {when}:
        pathlib.Path("{ready}").touch()
        while not pathlib.Path("{sent}").exists():
            time.sleep(0.01)
    return call(*arguments, **options)

module.{function} = paused
"""
PAUSES = {  # where, and what is on the disk when the command has ended
    "evaluation": ("scommer.engine.learner", "evaluate", 'arguments[0].name == "long_term"', "checkpoint"),
    "record": ("scommer.runs.record", "write_atomically", 'arguments[0].name == "record.json"', "record"),
    "clear": ("scommer.runs.checkpoint", "clear", "True", "record"),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("point", PAUSES)
def test_a_signal_at_the_worst_moment(
    tmp_path: Path, uninterrupted: tuple[Record, bytes], point: str, number: signal.Signals
) -> None:
    module, function, when, left = PAUSES[point]
    ready, sent, plugin = tmp_path / "ready", tmp_path / "sent", tmp_path / "pause.py"
    plugin.write_text(PAUSE.format(module=module, function=function, when=when, ready=ready, sent=sent))
    out = tmp_path / "runs"
    process = start(out, plugin=plugin)
    while process.poll() is None and not ready.exists():
        time.sleep(0.01)
    process.send_signal(number)
    sent.touch()
    output, _ = process.communicate(timeout=200)
    stopped = left == "checkpoint"
    if number == signal.SIGTERM:
        assert process.returncode == (130 if stopped else 0), output
        assert "Traceback" not in output
        assert bool(checkpoints(out)) == stopped
        assert bool(list(out.rglob("record.json"))) != stopped
    else:
        assert process.returncode == -signal.SIGKILL
        assert checkpoints(out) or list(out.rglob("record.json"))
    again = start(out)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert_same(result(out), uninterrupted)
    assert not checkpoints(out)
    assert not list(out.rglob(".*.partial"))


def test_a_run_whose_output_is_closed_is_saved(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stdout
    while "running" not in process.stdout.readline():  # warnings come first, before anything is trained
        pass
    process.stdout.close()
    process.wait(timeout=200)
    assert process.returncode
    assert checkpoints(tmp_path)


def test_nohup_is_respected(tmp_path: Path, uninterrupted: tuple[Record, bytes]) -> None:
    process = start(tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for_progress(process, tmp_path, set())
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert_same(result(tmp_path), uninterrupted)


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(
    tmp_path: Path, uninterrupted: tuple[Record, bytes]
) -> None:
    process = start(tmp_path)
    wait_for_progress(process, tmp_path, set())
    while process.poll() is None and len(checkpoints(tmp_path)) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    newest = max(tmp_path.rglob("checkpoint-*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    again = start(tmp_path)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert f"{newest.name} is damaged" in output
    assert_same(result(tmp_path), uninterrupted)


def test_a_full_disk_stops_the_run_with_a_message_and_keeps_what_was_saved(
    tmp_path: Path, uninterrupted: tuple[Record, bytes]
) -> None:
    process = start(tmp_path)
    wait_for_progress(process, tmp_path, set())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    saved = checkpoints(tmp_path)
    assert saved

    def small_files() -> None:  # the system refuses to let a file grow beyond 4 KiB
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    full = start(tmp_path, preexec_fn=small_files)
    output, _ = full.communicate(timeout=60)
    assert full.returncode == 1
    assert "cannot write" in output
    assert "then try again" in output
    assert "Traceback" not in output
    assert checkpoints(tmp_path) == saved
    again = start(tmp_path)
    again.communicate(timeout=200)
    assert_same(result(tmp_path), uninterrupted)


def test_a_second_process_on_the_same_run_is_refused(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_for_progress(first, tmp_path, set())
    first.send_signal(signal.SIGSTOP)  # keeps the lock while the second one tries
    second = start(tmp_path)
    output, _ = second.communicate(timeout=60)
    first.kill()
    first.communicate()
    assert second.returncode == 1
    assert "in use by another process" in output


def test_an_unfinished_run_can_be_shown(tmp_path: Path) -> None:
    process = start(tmp_path)
    while process.poll() is None and not list(tmp_path.rglob("progress.json")):  # written before any checkpoint
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)
    (path,) = tmp_path.rglob("progress.json")
    labels = load("digits").train_labels
    images = [int(((labels == 2 * t) | (labels == 2 * t + 1)).sum()) for t in range(5)]
    assert json.loads(path.read_text())["steps"][1] == sum(n // 32 for n in images) * 3
    call = subprocess.run([sys.executable, "-m", "scommer", "show", path.parent], capture_output=True, text=True)
    process.kill()
    process.communicate()
    assert "not finished" in call.stdout


def test_progress_is_written_before_the_first_checkpoint(tmp_path: Path) -> None:
    progress: list[dict[str, Any]] = []

    class Reader(Watch):
        def moment(self, learner: Learner, moment: Moment) -> None:
            progress.append(json.loads(next(tmp_path.rglob("progress.json")).read_text()))

    settings = {"network": "mlp", "width": 8, "epochs": 1}
    run(Experiment("s-digits", "er", 20, settings=settings), out=tmp_path, device="cpu", watch=Reader())
    assert {p["saved"] for p in progress} == {0}
    assert {p["task"] for p in progress} == set(range(5))  # after the last task comes the record


def test_a_stop_saves_all_of_several_runs(tmp_path: Path) -> None:
    process = start(tmp_path, seeds=(0, 1, 2))
    wait_for_progress(process, tmp_path, set())
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    for seed in range(3):
        (folder,) = tmp_path.glob(f"*-seed{seed}-*")
        assert list(folder.glob("checkpoint-*.safetensors")) or (folder / "record.json").exists()


class StopAfterTheLastStep(Watch):
    """Stops this process during a step of the watched run."""

    def begin(self, plan: Plan, learner: Learner, together: int) -> None:
        take, self.steps = learner.run_step, 0

        def counting(index: Tensor, replay: int, offer: bool) -> None:
            take(index, replay, offer)
            self.steps += 1
            if self.steps == 3:
                signal.raise_signal(signal.SIGINT)

        learner.run_step = counting


def test_a_stop_during_any_runs_step_saves_all(tmp_path: Path) -> None:
    for longer in (0, 1):  # the watched run is the longer one: first or last of the round
        experiments = [
            Experiment("s-digits", "sgd", seed=seed, settings={"epochs": 2 + (seed == longer), "width": 4})
            for seed in range(2)
        ]
        out = tmp_path / str(longer)
        with pytest.raises(KeyboardInterrupt, match="run the same command to resume"):
            run_together(experiments, out=out, watch=StopAfterTheLastStep())
        assert len({p.parent for p in out.rglob("checkpoint-*.safetensors")}) == 2
        assert len(run_together(experiments, out=out)) == 2
