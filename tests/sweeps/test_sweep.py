"""Sweeps: their runs are those of `scommer run`, they continue, share their work, and one that fails stops no other."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import call
from rich.console import Console
from sweeping import QUICK, assert_same_records, experiments

import scommer
from scommer import Experiment, gcil, plugins, run_together
from scommer.cli.sweep import _grid
from scommer.engine.learner import Learner
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs.checkpoint import locked
from scommer.runs.experiment import prepare
from scommer.runs.runner import Failed, TimeUp
from scommer.sweeps import sweep as engine
from scommer.sweeps.choice import Candidate, candidates, choice_table, chosen
from scommer.sweeps.status import LiveSweep, PlainSweep, SweepWatch
from scommer.sweeps.sweep import sweep, wanted
from scommer.sweeps.worker import Job, Outcome, work

CPU: dict[str, Any] = {"device": "cpu"}
SET = [f"--set={name}={value}" for name, value in QUICK.items()]


class Here:
    """Runs jobs in this process, one at a time."""

    slots, on_gpu = 1, False

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ran: list[str] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        ended = [(job, work(job)) for job in self.jobs]
        self.ran += [name for job in self.jobs for name in job.names]
        self.jobs = []
        return ended

    def close(self) -> None: ...


def lines_of(watch: type[PlainSweep] = PlainSweep) -> tuple[StringIO, PlainSweep]:
    printed = StringIO()
    return printed, watch(Console(file=printed, width=200))


def test_processes_make_the_records_of_run(tmp_path: Path) -> None:
    """Bit for bit, in several processes, and the second call repeats nothing."""
    todo = experiments()
    options = {**CPU, "weights": True}
    found = list(scommer.sweep(todo, out=tmp_path / "swept", **options))
    alone = run_together(todo, out=tmp_path / "alone", **options)
    assert sorted(r.name for r in found) == sorted(r.name for r in alone)
    assert_same_records(tmp_path / "swept", tmp_path / "alone")
    place = Here()
    assert len(list(sweep(todo, place, out=tmp_path / "swept", **options))) == 4
    assert not place.ran


def test_a_run_that_fails_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    todo = [*experiments(("sgd",)), *experiments(("sgd",), seeds=1, lr=1e30)]
    printed, watch = lines_of()
    with pytest.raises(Failed, match="the loss became") as failed:
        list(sweep(todo, Here(), out=tmp_path, watch=watch, **CPU))
    assert len(failed.value.records) == 2
    (name,) = failed.value.failures
    assert f"failed  {name}: the loss became" in printed.getvalue()
    assert printed.getvalue().count("done    ") == 2
    assert "\x1b" not in printed.getvalue()
    place = Here()
    with pytest.raises(Failed):
        list(sweep(todo, place, out=tmp_path, **CPU))
    assert place.ran == [name]


def test_a_damaged_record_is_a_failure(tmp_path: Path) -> None:
    todo = experiments(("sgd",))
    names = [r.name for r in sweep(todo, Here(), out=tmp_path, **CPU)]
    (tmp_path / names[0] / "record.json").write_text("{")
    with pytest.raises(Failed, match="is not a record of this version") as failed:
        list(sweep(todo, Here(), out=tmp_path, **CPU))
    assert [r.name for r in failed.value.records] == names[1:]


def test_two_sweeps_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process holds is left to it; what it leaves unfinished is taken over."""
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(engine, "TICK", 0.01)
    todo = experiments(("sgd",), seeds=3)
    names = [w.name for w in wanted(todo, tmp_path)]
    place = Here()
    with locked(tmp_path / names[0]):
        running = sweep(todo, place, out=tmp_path, **CPU)
        assert [next(running).name for _ in range(2)] == names[1:]
    assert next(running).name == names[0]
    assert place.ran == [*names, names[0]]
    # Finished by the other process: its record is read.
    again = tmp_path / "again"
    with locked(again / names[0]):
        running = sweep(todo, place := Here(), out=again, **CPU)
        assert [next(running).name for _ in range(2)] == names[1:]
        for file in (tmp_path / names[0]).iterdir():
            if file.name != ".lock":
                (again / names[0] / file.name).write_bytes(file.read_bytes())
        assert next(running).name == names[0]
    assert place.ran == names
    assert not list(running)


def test_two_threads_with_one_folder_run_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    todo, found = experiments(("sgd",), seeds=4), []
    monkeypatch.setattr("scommer.sweeps.worker.os.environ", {**os.environ, "OMP_NUM_THREADS": "1"})

    def one() -> None:
        found.append(sorted(r.name for r in sweep(todo, Here(), out=tmp_path, **CPU)))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert len(found[0]) == 4
    run_together(todo, out=tmp_path / "alone", **CPU)
    assert_same_records(tmp_path, tmp_path / "alone")


def test_warnings_are_shown_once(tmp_path: Path) -> None:
    printed, watch = lines_of()
    list(sweep(experiments(("scommer",), epochs=1), Here(), out=tmp_path, watch=watch, **CPU))
    assert printed.getvalue().count("semantic dropout starts only after a task") == 1


def test_the_time_limit_holds_for_all(tmp_path: Path) -> None:
    with pytest.raises(TimeUp, match="time is up: 2 runs are left"):
        list(sweep(experiments(("sgd",)), Here(), out=tmp_path, minutes=1e-9, **CPU))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"together": 0}, "together = 0 is invalid"),
        ({"on": "moon"}, "unknown place to run 'moon'"),
        ({"minutes": -1}, "minutes = -1 is invalid"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds = -1 is invalid"),
        ({"device": "toaster"}, "device 'toaster' cannot be used"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        sweep(experiments(), out=tmp_path, **{**CPU, **arguments})
    with pytest.raises(UsageError, match="is not an experiment"):
        sweep(["s-digits"], out=tmp_path, **CPU)  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())


# --- the best settings


def test_the_table_of_settings_says_what_each_run_had() -> None:
    made = [
        Candidate(Experiment("s-digits", "er", 50, settings={"epochs": 1, "lr": 0.01}), 1, (50.0,)),
        Candidate(Experiment("s-digits", "scommer", 50, settings={"epochs": 1}), 1, (60.0,)),
    ]
    table = choice_table(made, "Results", "Class-IL (%)")
    assert [r.cells[3].text for r in table.rows] == ["lr=0.01", "–"]
    assert table.notes == ("All with epochs=1.",)
    (only,) = choice_table(made[:1], "Test", "Class-IL (%)").rows
    assert only.cells[3].text == "epochs=1, lr=0.01"
    (only,) = choice_table([Candidate(Experiment("s-digits", "er", 50), 1, (50.0,))], "Test", "Class-IL (%)").rows
    assert only.cells[3].text == "preset"


def test_the_best_setting_has_the_highest_mean_and_all_of_its_seeds(tmp_path: Path) -> None:
    todo = wanted([e for lr in (0.01, 0.2, 1e30) for e in experiments(("sgd",), lr=lr)], tmp_path)
    with pytest.raises(Failed) as failed:
        list(sweep([w.experiment for w in todo], Here(), out=tmp_path, **CPU))
    records = failed.value.records
    means = {}
    for lr in (0.01, 0.2):
        of_lr = [r.accuracy() for r in records if r.settings["lr"] == lr]
        means[lr] = sum(of_lr) / len(of_lr)
    found = candidates(todo, records)
    assert [c.experiment.settings["lr"] for c in found] == [*sorted(means, key=lambda lr: -means[lr]), 1e30]
    (best,) = chosen(found)
    assert best.experiment.settings["lr"] == max(means, key=lambda lr: means[lr])
    with pytest.raises(UsageError, match="no setting of sgd on s-digits has all of its seeds"):
        chosen([c for c in found if not c.complete])


def test_validation_then_final(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = [
        "sweep", "s-digits", "--method", "er", "sgd", "--buffer", "20", *SET, "--set=lr=0.01,0.2", "--seeds", "0-1",
        "--validation", "0.2", "--device", "cpu", "--out", str(tmp_path),
    ]  # fmt: skip
    code, out, err = call(capsys, *command)
    assert code == 0, err
    assert "\x1b" not in out
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
    assert len(records) == 8
    assert {r["experiment"]["validation"] for r in records} == {0.2}
    best = {}
    for method in ("er", "sgd"):
        means = {
            lr: sum(r["scores"]["working"]["class_il"]["accuracy"] / 2 for r in records
                    if (r["experiment"]["method"], r["settings"]["lr"]) == (method, lr))
            for lr in (0.01, 0.2)
        }  # fmt: skip
        best[method] = max(means, key=lambda lr, means=means: means[lr])
        assert f"{means[best[method]]:.2f} ±" in out
    code, out, err = call(capsys, *command, "--final")
    assert code == 0, err
    final = [json.loads(path.read_text()) for path in tmp_path.glob("final/*/record.json")]
    assert {(r["experiment"]["method"], r["experiment"]["seed"], r["settings"]["lr"]) for r in final} == {
        (method, seed, lr) for method, lr in best.items() for seed in (0, 1)
    }
    assert {r["experiment"]["validation"] for r in final} == {0.0}
    assert "Test" in out
    assert call(capsys, "report", str(tmp_path / "final"), "-o", str(tmp_path / "report.html"))[0] == 0
    assert call(capsys, "show", str(tmp_path))[0] == 0


def test_validation_does_not_depend_on_the_test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace
    from functools import partial

    import torch

    from scommer import class_il
    from scommer.data import load
    from scommer.streams import STREAMS

    def poisoned(root: Path) -> Any:
        digits = load("digits")
        return replace(digits, test_images=torch.full_like(digits.test_images, 7), test_labels=digits.test_labels * 0)

    monkeypatch.setitem(STREAMS._entries, "s-poisoned", (poisoned, partial(class_il, tasks=5)))
    monkeypatch.setitem(STREAMS._entries, "s-whole", ("digits", partial(class_il, tasks=5)))
    settings = {**QUICK, "mean": [0.3], "std": [0.4], "alpha": 0.9}
    scores = [
        next(sweep([Experiment(name, "cls-er", 20, validation=0.2, settings=settings)], Here(), out=tmp_path, **CPU))
        for name in ("s-poisoned", "s-whole")
    ]
    assert scores[0].stream.fingerprint == scores[1].stream.fingerprint
    assert scores[0].matrices == scores[1].matrices


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s-digits", "--final"], "give --validation"),
        (["s-digit"], "unknown stream 's-digit'"),
        (["s-digits", "--method", "era"], "unknown method 'era'"),
        (["s-digits", "--set", "lr=0.1", "--set", "lr=0.2"], "a setting is given twice"),
        (["s-digits", "--set", "lr=much"], "lr = 'much' is invalid"),
        (["s-digits", "--on", "moon"], "unknown place to run 'moon'"),
        (["s-digits", "--partition", "gpu"], "--partition is for --on slurm, not for local"),
        (["s-digits", "--processes", "0"], "processes = 0 is invalid"),
        (["s-digits", "--trials", "3"], "give --search optuna and --trials together"),
        (["s-digits", "--trials", "3", "--search", "optuna", "--dry-run"], "--dry-run is for a grid"),
        (["nowhere.toml"], "cannot read nowhere.toml"),
        (["s-digits", "one.toml"], "give one TOML file"),
    ],
)
def test_wrong_commands(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "sweep", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not list(tmp_path.iterdir())


def test_dry_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = call(
        capsys, "sweep", "s-digits", "-m", "er,sgd", "--seeds", "0-2", "--dry-run", "--out", str(tmp_path)
    )
    assert code == 0
    assert "0 of 6 runs are done" in out
    assert not list(tmp_path.iterdir())


# --- what is shown


def test_the_live_table_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    todo = wanted(experiments(("sgd",), seeds=40), tmp_path)
    screen = StringIO()
    watch = LiveSweep(Console(file=screen, force_terminal=True, width=80, height=24))
    watch.begin(todo, tmp_path)
    watch.submitted([w.name for w in todo])
    for step in (1, 2):
        for w in todo[:30]:
            (tmp_path / w.name).mkdir(exist_ok=True)
            progress = {"name": w.name, "steps": [10 * step, 44], "saved": 0, "task": 1, "epoch": 0, "tasks": 5,
                        "epochs": 1, "scores": {}}  # fmt: skip
            (tmp_path / w.name / "progress.json").write_text(json.dumps(progress))
            os.utime(tmp_path / w.name / "progress.json", (step, step))
        watch.looked -= 10
        time.sleep(0.01)
        watch.show()
    watch.failed(todo[0].name, "the loss became nan " * 10)
    table = Console(width=80, height=24, record=True, file=StringIO())
    table.print(watch._table())
    watch.end()
    lines = table.export_text().splitlines()
    assert len(lines) <= 24
    assert lines[0].startswith("10 waiting, 29 running, 0 done, 1 failed")
    assert any("2/5" in line and "45 %" in line and line.rstrip().endswith("0:00") for line in lines)
    assert any("… and" in line for line in lines)
    assert any(line.startswith("failed  s-digits-sgd-seed0") for line in lines)


def test_a_watch_that_shows_nothing_gets_warnings() -> None:
    with pytest.warns(scommer.errors.RunWarning, match="careful"):
        SweepWatch().warn("careful")


def test_the_public_names_are_listed() -> None:
    assert set(scommer.__all__) <= set(dir(scommer))
    assert all(getattr(scommer, name) is not None for name in scommer.__all__)
    code = "import sys, scommer, scommer.cli; assert not {'torch', 'ray', 'optuna', 'submitit'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    heavy = "import sys; from scommer import sweep; assert not {'ray', 'optuna', 'submitit'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", heavy], check=True)


def test_python_can_show_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = experiments(("sgd",), seeds=1)
    record = scommer.run(one, watch=True)
    assert "after task 5" in capsys.readouterr().out
    assert "\n" not in repr(record)
    list(sweep([one], Here(), out=tmp_path, watch=True, **CPU))
    assert f"done    {record.name}" in capsys.readouterr().out


def test_reproduce_on_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from scommer.paper import tables

    rows = [{"method": "sgd", "settings": QUICK, "values": [[20.0, 1.0]]}]
    numbers: dict[str, Any] = {"main": {"source": "made up", "columns": ["s-digits/class_il"], "rows": rows}}
    monkeypatch.setattr(tables, "paper_numbers", lambda: numbers)
    words = ["reproduce", "main", "--seeds", "0-1", "--on", "local", "--processes", "1", "--device", "cpu"]
    code, out, err = call(capsys, *words, "--runs", str(tmp_path / "swept"))
    assert code == 0, err
    assert "2 runs finished, 0 to go" in out
    run_together(experiments(("sgd",)), out=tmp_path / "alone", **CPU)
    assert len(list(tmp_path.glob("swept/*/record.json"))) == 2


def test_a_process_that_dies_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "bad.py"
    plugin.write_text(
        "from scommer.methods import METHODS\nfrom scommer.methods.sgd import SGD\n"
        "class Bad(SGD):\n    def loss(self, *given):\n        raise ValueError('my own bug')\nMETHODS['bad'] = Bad\n"
    )
    words = ["sweep", "s-digits", "-m", "bad", *SET, "--processes", "1", "--device", "cpu", "--plugin", str(plugin)]
    try:
        code, _, err = call(capsys, *words, "--out", str(tmp_path / "runs"))
    finally:
        METHODS.pop("bad", None)
    assert code == 1
    assert "its process ended with exit code 1: ValueError: my own bug" in err


def test_a_sweep_does_not_start_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a sweep continues what is there"):
        sweep(experiments(("sgd",)), Here(), out=tmp_path, fresh=True, **CPU)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('stream = "s-digits"\nvalidation = 0.1\nseeds = "0-1"')
    none = dict.fromkeys(("methods", "buffers", "seeds", "variant"))
    assert _grid([str(file)], settings=None, **none, validation=0.0).validation == 0
    kept = _grid([str(file)], settings=None, **none, validation=None)
    assert (kept.validation, kept.seeds) == (0.1, (0, 1))


def test_steps_of_an_own_stream_with_recurring_classes(tmp_path: Path) -> None:
    """A task without a new class is repeated less often."""
    r = np.random.default_rng(0)
    labels = np.arange(240) % 3
    stream = gcil((r.random((240, 8, 8)), labels, r.random((6, 8, 8)), np.arange(6) % 3), tasks=6, samples=24)
    plan = prepare(Experiment(stream, "er", 20))
    (todo,) = wanted([Experiment(stream, "er", 20)], tmp_path)
    learner = Learner(stream, plan.method, plan.training, buffer=20)
    assert todo.steps == learner.steps[1]
    seen: set[int] = set()
    expected = 0
    for task in stream.tasks:  # batches of 32 with at most 24 images: an epoch is a step
        images, new = len(task.train), not set(task.classes) <= seen
        expected += max(math.ceil(images / 32 * 20), min(300, (10 if new else 3) * images))
        seen |= set(task.classes)
    assert todo.steps == expected


def test_processes_load_plugins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from scommer.methods import METHODS\nfrom scommer.methods.sgd import SGD\n"
        "METHODS['mine'] = SGD\nprint('hello')\n"
    )
    words = [
        "sweep",
        "s-digits",
        "-m",
        "mine",
        *SET,
        "--processes",
        "1",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "runs"),
    ]
    before = dict(METHODS)
    try:
        code, _, err = call(capsys, *words, "--plugin", str(plugin))
    finally:
        METHODS.clear()
        METHODS.update(before)
        plugins.LOADED.clear()
    assert code == 0, err
    assert len(list(tmp_path.glob("runs/s-digits-mine-*/record.json"))) == 1


# --- signals


def start(out: Path, *more: str) -> "subprocess.Popen[str]":
    slow = ["--set=network=mlp", "--set=width=8", "--set=epochs=15", "--set=batch=4"]
    return subprocess.Popen(
        [sys.executable, "-m", "scommer", "sweep", "s-digits", "-m", "er", "-b", "20", "--seeds", "0-2", *slow,
         "--device", "cpu", "--out", str(out), *more],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def wait_until_running(process: "subprocess.Popen[str]", out: Path) -> None:
    while process.poll() is None:
        done = [json.loads(path.read_text())["steps"][0] for path in out.rglob("progress.json")]
        if sum(n > 20 for n in done) > 1:
            return
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_stopped_or_killed_continues(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path / "swept")
    wait_until_running(process, tmp_path)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == 130, output
        assert "run the same command to resume" in output
    for _ in range(100):  # processes whose parent was killed save their runs too
        if len(list(tmp_path.rglob("checkpoint-*"))) >= 2:
            break
        time.sleep(0.1)
    assert len({path.parent for path in tmp_path.rglob("checkpoint-*")}) == 2
    again = start(tmp_path / "swept")
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    settings = {"network": "mlp", "width": 8, "epochs": 15, "batch": 4}
    run_together(
        [Experiment("s-digits", "er", 20, s, settings=settings) for s in range(3)], out=tmp_path / "alone", **CPU
    )
    assert_same_records(tmp_path / "swept", tmp_path / "alone")


@pytest.mark.long
def test_a_process_that_is_killed_fails_its_runs_only(tmp_path: Path) -> None:
    process = start(tmp_path, "--processes", "1")
    while not list(tmp_path.rglob("progress.json")):
        time.sleep(0.05)
    (worker,) = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(worker), signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "its process was ended by SIGKILL, perhaps because memory is exhausted" in output
    assert len(list(tmp_path.rglob("record.json"))) == 2
