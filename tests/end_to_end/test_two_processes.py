"""Two processes and one run: the first has it, the second is refused, and the record is right."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tiny import assert_same, experiment, result

from scommer.errors import RunError
from scommer.runs import checkpoint
from scommer.runs.runner import Failed, run, run_together

OPTIONS: dict[str, Any] = {"device": "cpu", "weights": True}


def test_a_folder_is_never_held_twice(tmp_path: Path) -> None:
    """Even while an empty folder and its lock are created and removed again all the time."""
    folder, holders, most, done = tmp_path / "runs" / "run", 0, 0, 0
    refused: list[str] = []
    count = threading.Lock()

    def hold(seed: int) -> None:
        nonlocal holders, most, done
        for _ in range(300):
            try:
                with checkpoint.locked(folder):
                    with count:
                        holders += 1
                        most = max(most, holders)
                    time.sleep(0.0005)
                    with count:
                        holders, done = holders - 1, done + 1
            except RunError as e:
                with count:
                    refused.append(str(e))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hold, range(4)))
    assert most == 1
    assert done + len(refused) == 1200
    assert refused
    assert all("in use by another process" in message for message in refused)  # also while the folder disappears


def test_a_run_that_another_process_holds_does_not_stop_the_others(tmp_path: Path) -> None:
    cohort = [experiment("er", seed) for seed in range(3)]
    whole = run_together(cohort, out=tmp_path / "whole", **OPTIONS)
    held = whole[1].name
    with checkpoint.locked(tmp_path / "runs" / held):
        with pytest.raises(Failed, match=f"{held} is in use by another process") as failed:
            run_together(cohort, out=tmp_path / "runs", **OPTIONS)
        assert [r.experiment.seed for r in failed.value.records] == [0, 2]
        with pytest.raises(RunError, match="in use by another process"):
            run(cohort[1], out=tmp_path / "runs", **OPTIONS, fresh=True)
    run_together(cohort, out=tmp_path / "runs", **OPTIONS)
    for record in whole:
        assert_same(result(tmp_path / "runs" / record.name), result(tmp_path / "whole" / record.name))


COMMAND = [
    sys.executable, "-m", "scommer", "run", "s-digits", "-m", "er", "--buffer", "20", "--epochs", "2",
    "--device", "cpu", "--set", "network=mlp", "--set", "width=8", "--save-weights",
    "--checkpoint-seconds", "0", "--out",
]  # fmt: skip


def start(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.long
def test_processes_that_start_at_once(tmp_path: Path) -> None:
    alone = start(tmp_path / "alone")
    assert alone.communicate(timeout=200)
    out = tmp_path / "runs"
    processes = [start(out) for _ in range(3)]
    outputs = [process.communicate(timeout=200) for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes  # a late one may read the record of the first
    for code, (_, err) in zip(codes, outputs, strict=True):
        assert (code, len(err.splitlines())) in ((0, 0), (1, 1)), err
        assert code == 0 or "is in use by another process: wait for it" in err
    (folder,) = out.iterdir()
    assert_same(result(folder), result(tmp_path / "alone" / folder.name))


@pytest.mark.long
def test_a_second_process_continues_when_the_first_was_killed(tmp_path: Path) -> None:
    alone = start(tmp_path / "alone")
    alone.communicate(timeout=200)
    out = tmp_path / "runs"
    first = start(out)
    while first.poll() is None and not list(out.rglob("checkpoint-*.safetensors")):
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    refused = start(out)
    _, err = refused.communicate(timeout=200)
    assert (refused.returncode, "in use by another process" in err) == (1, True)
    first.kill()
    first.communicate()
    second = start(out)
    output, err = second.communicate(timeout=200)
    assert second.returncode == 0, err
    assert "resuming" in output
    (folder,) = out.iterdir()
    assert_same(result(folder), result(tmp_path / "alone" / folder.name))
