"""Runs that are killed, stopped, run out of disk or meet another process: nothing is lost."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from scommer.data import load
from scommer.record import Record

pytestmark = pytest.mark.long

RUN = [
    sys.executable, "-m", "scommer", "run", "s-digits", "--buffer", "20", "--epochs", "3", "--device", "cpu",
    "--set", "width=4", "--set", "warmup=1", "--save-weights", "--checkpoint-seconds", "0.05", "--out",
]  # fmt: skip


def start(out: Path, **options: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*RUN, str(out)], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
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


def test_killed_again_and_again_it_ends_in_the_same_record(tmp_path: Path, uninterrupted: tuple[Record, bytes]) -> None:
    when = random.Random(3)
    kills = 0
    while not list(tmp_path.rglob("record.json")):
        process = start(tmp_path)
        wait_for_progress(process, tmp_path, checkpoints(tmp_path))
        if kills < 8:
            time.sleep(when.uniform(0, 0.5))
        else:
            process.wait(timeout=200)
        if process.poll() is None:
            process.kill()
            kills += 1
        process.communicate()
    assert kills >= 5
    assert_same(result(tmp_path), uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_go_on_and_goes_on(
    tmp_path: Path, uninterrupted: tuple[Record, bytes], number: signal.Signals
) -> None:
    process = start(tmp_path)
    wait_for_progress(process, tmp_path, set())
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to go on" in output
    assert "Traceback" not in output
    again = start(tmp_path)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert "resuming" in output
    assert_same(result(tmp_path), uninterrupted)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, uninterrupted: tuple[Record, bytes]
) -> None:
    process = start(tmp_path)
    wait_for_progress(process, tmp_path, set())
    while len(checkpoints(tmp_path)) < 2:
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


def test_a_full_disk_ends_the_run_with_a_message_and_what_was_saved_stays(
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
    assert "run the same command to go on" in output
    assert "Traceback" not in output
    assert checkpoints(tmp_path) == saved
    again = start(tmp_path)
    again.communicate(timeout=200)
    assert_same(result(tmp_path), uninterrupted)


def test_a_second_process_on_one_run_is_refused(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_for_progress(first, tmp_path, set())
    first.send_signal(signal.SIGSTOP)  # holds the lock while the second one tries
    second = start(tmp_path)
    output, _ = second.communicate(timeout=60)
    first.kill()
    first.communicate()
    assert second.returncode == 1
    assert "in use by another process" in output


def test_a_running_run_can_be_shown(tmp_path: Path) -> None:
    process = start(tmp_path)
    while process.poll() is None and not list(tmp_path.rglob("progress.json")):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    (path,) = tmp_path.rglob("progress.json")
    labels = load("digits").train_labels
    images = [int(((labels == 2 * t) | (labels == 2 * t + 1)).sum()) for t in range(5)]
    assert json.loads(path.read_text())["steps"][1] == sum(n // 32 for n in images) * 3
    call = subprocess.run([sys.executable, "-m", "scommer", "show", path.parent], capture_output=True, text=True)
    assert "not finished" in call.stdout
