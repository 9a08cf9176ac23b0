"""The table of exit codes in the documents holds: a case for each thing that it says."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import QUICK, call, exit_code

from scommer.engine.learner import Learner
from scommer.runs.checkpoint import locked

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"
RUN = ["run", "s-digits", "-m", "sgd", *QUICK, "--out", "runs"]
SEEDS = ["--seeds", "0", "1"]
CASES = {  # in this process: code, a word of the table, and a command
    "a list": (0, "Done", ["list"]),
    "help": (0, "Done", ["run", "--help"]),
    "a run": (0, "Done", RUN),
    "time is up": (0, "--minutes", [*RUN, "--minutes", "0.000001"]),
    "a loss that is not finite": (1, "cannot continue", [*RUN, "--set", "lr=1e30"]),
    "a run in use": (1, "in use by another process", [*RUN, *SEEDS]),
    "an unknown command": (2, "command", ["rum"]),
    "an unknown option": (2, "option", [*RUN, "--bufer", "3"]),
    "an unknown name": (2, "name", ["run", "s-digit"]),
    "an invalid value": (2, "value", [*RUN, "--seed", "one"]),
    "a missing run": (2, "cannot be read", ["show", "nowhere"]),
}


def rows() -> dict[int, str]:
    return {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(), re.M)}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    yield
    signal.signal(signal.SIGINT, before)


def test_the_table_has_these_codes() -> None:
    assert list(rows()) == [0, 1, 2, 130, 143]
    assert {code for code, _, _ in CASES.values()} == {0, 1, 2}


@pytest.mark.parametrize("case", CASES)
def test_a_command(case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, word, command = CASES[case]
    assert word in rows()[code]
    if case == "a run in use":  # one of two
        assert exit_code(*RUN) == 0
        (folder,) = (tmp_path / "runs").iterdir()
        with locked(folder):
            found, _, err = call(capsys, *command)
        assert len(list(tmp_path.rglob("record.json"))) == 2  # the other is finished
    else:
        found, _, err = call(capsys, *command)
    assert found == code, err
    assert len(err.splitlines()) == (1 if code or case == "time is up" else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 2])
def test_signals_while_a_run_is_trained(
    number: signal.Signals, times: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert number == signal.SIGINT or number.name in rows()[130]
    score, before = Learner.score, signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def stopped(learner: Learner) -> None:
        for _ in range(times):
            signal.raise_signal(number)
        score(learner)

    monkeypatch.setattr(Learner, "score", stopped)
    code, _, err = call(capsys, *RUN)
    signal.signal(signal.SIGHUP, before)
    assert code == 130
    assert ("run the same command to resume" in err) == (times == 1)


PAUSE = "import sys, time; print('ready', flush=True); time.sleep(60)"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_otherwise(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "pause.py").write_text(PAUSE)
    process = subprocess.Popen(
        [sys.executable, "-m", "scommer", "list", "--plugin", "pause.py"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (128 - process.returncode if process.returncode < 0 else process.returncode) == code  # as in a shell
    assert err == ("scommer: stopped\n" if number == signal.SIGINT else "")


def test_a_stop_while_the_command_line_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(PAUSE)  # found first, and slow to import
    process = subprocess.Popen(
        [sys.executable, "-m", "scommer", "list"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "scommer: stopped\n")
