"""`--minutes` is the time of the whole command, and an evaluation hears signals, also with a slow network."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
TOLERANCE = 10.0  # seconds


def start(cifar: Callable[[str], Path], out: Path, *more: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable, "-m", "scommer", "run", "s-cifar10", "--data", str(cifar("cifar10")), "--device", "cpu",
        "--out", str(out), *more,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


def test_minutes_are_those_of_the_whole_command(cifar: Callable[[str], Path], tmp_path: Path) -> None:
    """ResNet-18 needs minutes for its first evaluation of 10,000 images on one core."""
    began = time.monotonic()
    process = start(cifar, tmp_path, "--minutes", "0.3")
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output
    assert "time is up at task 1, epoch 1" in output
    assert abs(time.monotonic() - began - 18) < TOLERANCE
    assert list(tmp_path.rglob("checkpoint-*"))


def test_a_signal_stops_an_evaluation(cifar: Callable[[str], Path], tmp_path: Path) -> None:
    process = start(cifar, tmp_path)
    while process.poll() is None and not list(tmp_path.rglob("progress.json")):
        time.sleep(0.1)
    time.sleep(2)  # now it evaluates
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert time.monotonic() - sent < TOLERANCE
    assert list(tmp_path.rglob("checkpoint-*"))
