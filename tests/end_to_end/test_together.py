"""Runs side by side give the same records as alone."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scommer import Experiment, Record, run
from scommer.errors import RunError, RunWarning, UsageError
from scommer.methods.er import ER
from scommer.runs.progress import Watch
from scommer.runs.runner import Failed, Interrupted, run_together

QUICK = {"epochs": 2, "width": 4}


def assert_same(a: Record, b: Record) -> None:
    assert (a.name, a.matrices, a.scores, a.untrained) == (b.name, b.matrices, b.scores, b.untrained)
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name], err_msg=name)


def test_each_seed_gives_the_same_record_as_alone() -> None:
    experiments = [Experiment("s-digits", "scommer", 20, seed, settings=QUICK) for seed in (0, 1, 2)]
    together = run_together(experiments)
    for experiment, record in zip(experiments, together, strict=True):
        alone = run(experiment)
        assert_same(record, alone)
        assert (record.times.together, alone.times.together) == (3, 1)
    assert len({str(record.matrices) for record in together}) == 3


def test_methods_buffers_and_settings_may_differ(tmp_path: Path) -> None:
    experiments = [
        Experiment("s-digits", "er", 20, settings=QUICK),
        Experiment("s-digits", "der++", 40, settings=QUICK),
        Experiment("s-digits", "sgd", settings={**QUICK, "epochs": 1}),
        Experiment("s-digits", "joint", settings=QUICK),
        Experiment("s-digits", "scommer", 20, settings={**QUICK, "r": 0.9}),
    ]
    records = run_together(experiments, out=tmp_path)
    assert [r.experiment.method for r in records] == ["er", "der++", "sgd", "joint", "scommer"]
    assert len(list(tmp_path.rglob("record.json"))) == 5
    for experiment, record in zip(experiments, records, strict=True):
        assert_same(Record.load(tmp_path / record.name), record)
        assert_same(record, run(experiment))


def test_finished_runs_are_read_and_the_others_are_run(tmp_path: Path) -> None:
    first = run(Experiment("s-digits", "sgd", seed=0, settings=QUICK), out=tmp_path)
    written = (tmp_path / first.name / "record.json").stat().st_mtime_ns
    both = run_together([Experiment("s-digits", "sgd", seed=s, settings=QUICK) for s in (0, 1)], out=tmp_path)
    assert_same(both[0], first)
    assert (tmp_path / first.name / "record.json").stat().st_mtime_ns == written
    assert both[1].experiment.seed == 1
    assert both[1].times.together == 1  # the first had not to be run


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    good = Experiment("s-digits", "sgd", settings=QUICK)
    broken = Experiment("s-digits", "sgd", settings={**QUICK, "lr": 1e30})
    with pytest.raises(Failed, match="the loss became") as failed:
        run_together([broken, good], out=tmp_path)
    (folder,) = (p.parent for p in tmp_path.rglob("record.json"))
    assert [r.name for r in failed.value.records] == [folder.name]
    assert_same(Record.load(folder), run(good))


def test_a_run_that_diverges_gives_one_warning(recwarn: pytest.WarningsRecorder) -> None:
    wild = Experiment("s-digits", "sgd", settings={**QUICK, "lr": 20.0})
    diverged, _ = run_together([wild, Experiment("s-digits", "sgd", settings=QUICK)])
    (message,) = (str(w.message) for w in recwarn if issubclass(w.category, RunWarning))
    first = int(np.argmax(diverged.arrays["loss"] > 5 * np.log(10)))
    when, loss = f"task {first // 2 + 1}, epoch {first % 2 + 1}", diverged.arrays["loss"][first]
    assert message.startswith(f"{diverged.name}, {when}: ")
    assert f"{loss:.1f}" in message


class Stopping(Watch):
    """Stops this process after a few steps, and collects warnings."""

    def __init__(self) -> None:
        self.steps, self.warnings = 0, ""

    def moment(self, *_: Any) -> None:
        self.steps += 1
        if self.steps == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    def warn(self, message: str) -> None:
        self.warnings += message


def test_a_stop_saves_every_run_that_can_be_saved(tmp_path: Path) -> None:
    seeds = [Experiment("s-digits", "sgd", seed=s, settings={**QUICK, "lr": lr}) for s, lr in ((0, 1e30), (1, 0.1))]
    watch = Stopping()
    with pytest.raises(Interrupted, match="seed1"):
        run_together(seeds, out=tmp_path, watch=watch)
    (saved,) = tmp_path.rglob("checkpoint-*")
    assert "seed1" in str(saved)
    assert "seed0" in watch.warnings
    assert "was not saved: the loss became" in watch.warnings


def test_a_run_that_cannot_start_does_not_stop_the_others(tmp_path: Path) -> None:
    good, other = (Experiment("s-digits", "sgd", seed=s, settings=QUICK) for s in (0, 1))
    with pytest.raises(Interrupted):
        run(other, out=tmp_path, watch=Stopping())
    (checkpoint,) = tmp_path.rglob("checkpoint-*")
    checkpoint.with_name("record.json").write_text("{}")
    with pytest.raises(Failed, match="not a record of this version") as failed:
        run_together([other, good], out=tmp_path)
    assert [r.experiment.seed for r in failed.value.records] == [0]


def test_an_error_of_all_runs_is_raised_once_and_leaves_no_files(tmp_path: Path) -> None:
    wrong = [Experiment("s-digits", "scommer", 20, s, settings={**QUICK, "active": [0.9]}) for s in (0, 1)]
    with pytest.raises(UsageError, match=r"^[^;]*the network has 2 stages[^;]*$"):
        run_together(wrong, out=tmp_path / "runs")
    assert not list(tmp_path.rglob(".lock"))


def test_a_finished_run_with_another_precision_is_refused(tmp_path: Path) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    record = run(one, out=tmp_path, device="cpu")
    record.device = replace(record.device, precision="bf16")  # as if it came from a GPU
    record.save(tmp_path / record.name)
    assert run(one, out=tmp_path, device="cpu").device.precision == "bf16"
    with pytest.raises(RunError, match="was finished with --precision bf16, not fp32"):
        run(one, out=tmp_path, device="cpu", precision="fp32")


def test_checkpoints_that_a_killed_process_left_are_removed(tmp_path: Path) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    with pytest.raises(Interrupted):
        run(one, out=tmp_path, watch=Stopping())
    (checkpoint,) = tmp_path.rglob("checkpoint-*")
    left = checkpoint.read_bytes()
    record = run(one, out=tmp_path)
    checkpoint.write_bytes(left)
    assert_same(run(one, out=tmp_path), record)
    assert not checkpoint.exists()


def test_reading_the_record_keeps_checkpoints_of_training_for_weights(tmp_path: Path) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    record = run(one, out=tmp_path)
    with pytest.raises(Interrupted):
        run(one, out=tmp_path, watch=Stopping(), weights=True)
    (checkpoint,) = tmp_path.rglob("checkpoint-*")
    assert_same(run(one, out=tmp_path), record)
    assert checkpoint.exists()
    left = checkpoint.read_bytes()
    run(one, out=tmp_path, weights=True)
    checkpoint.write_bytes(left)  # as if killed when the weights were written
    run(one, out=tmp_path)
    assert not checkpoint.exists()


def test_fresh_removes_nothing_before_all_runs_can_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    record = run(one, out=tmp_path, weights=True)

    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / record.name).iterdir()}

    before = kept()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # not installed
    with pytest.raises(UsageError, match="needs a package"):
        run(one, out=tmp_path, fresh=True, log="tensorboard")
    assert kept() == before
    other = Experiment("s-digits", "er", 20, settings=QUICK)

    def broken(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(ER, "memories", broken)
    with pytest.raises(MemoryError):
        run_together([one, other], out=tmp_path, fresh=True)
    assert kept() == before


def test_a_fresh_run_is_resumed_without_fresh(tmp_path: Path) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    whole, rest = Stopping(), Stopping()
    whole.steps = rest.steps = 3  # past the stop
    record = run(one, out=tmp_path, watch=whole, weights=True)
    with pytest.raises(Interrupted, match="the same command without --fresh to resume"):
        run(one, out=tmp_path, watch=Stopping(), fresh=True)
    (folder,) = tmp_path.iterdir()
    assert not {"record.json", "arrays.npz", "weights.safetensors"} & {path.name for path in folder.iterdir()}
    assert_same(run(one, out=tmp_path, watch=rest), record)
    assert rest.steps == whole.steps - 3


@pytest.mark.filterwarnings("error::scommer.errors.RunWarning")
def test_without_a_watch_warnings_are_python_warnings() -> None:
    short = Experiment("s-digits", "scommer", 20, settings={**QUICK, "epochs": 1, "warmup": 3})
    with pytest.raises(RunWarning, match="semantic dropout starts only after a task"):
        run(short)


def test_a_warning_about_a_plan_is_given_once_for_all_seeds(recwarn: pytest.WarningsRecorder) -> None:
    short = {**QUICK, "epochs": 1, "warmup": 3}
    run_together([Experiment("s-digits", "scommer", 20, seed, settings=short) for seed in range(3)])
    assert len([w for w in recwarn if "semantic dropout" in str(w.message)]) == 1


def test_a_name_is_not_an_experiment() -> None:
    with pytest.raises(UsageError, match=r"a str is not an experiment: give one, as in Experiment\('s-digits'\)"):
        run("s-digits")  # type: ignore[arg-type]


def test_experiments_may_come_from_a_generator() -> None:
    found = run_together(Experiment("s-digits", "sgd", seed=s, settings=QUICK) for s in (0, 1))  # type: ignore[arg-type]
    assert [r.experiment.seed for r in found] == [0, 1]


def test_an_experiment_given_twice_is_run_once(tmp_path: Path) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    first, second = run_together([one, one], out=tmp_path)
    assert first is second
