"""The curves in TensorBoard, MLflow and W&B, read back with these tools."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from scommer import Experiment, run
from scommer.engine.learner import Learner, Moment
from scommer.errors import RunError, UsageError
from scommer.runs.logs import LOGS, open_log
from scommer.runs.progress import Watch
from scommer.runs.record import Record
from scommer.runs.runner import Interrupted

QUICK = Experiment("s-digits", "er", 30, settings={"epochs": 2, "network": "mlp", "width": 16})


def expected(record: Record) -> dict[str, list[float]]:
    """Return the curves of a record: the loss of each epoch, and after each task the mean over the tasks so far."""
    r = record.matrices["working"]["class_il"]
    return {
        "loss": record.arrays["loss"].tolist(),
        "working/class_il/mean": [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(r)],
        "working/class_il/task 1": [row[0] for row in r],
    }


def tensorboard_curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_curves_of_the_record(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    record = run(QUICK, out=tmp_path, device="cpu", log="tensorboard")
    curves = tensorboard_curves(tmp_path / record.name / "tensorboard")
    for name, values in expected(record).items():
        assert [v for _, v in curves[name]] == pytest.approx(values, rel=1e-5), name
    steps = [step for step, _ in curves["loss"]]
    assert steps[-1] == record.times.steps
    assert steps == sorted(set(steps))
    assert "working/class_il/task 5" in curves


class StopInTheSecondTask(Watch):
    def moment(self, learner: Learner, moment: Moment) -> None:
        if (learner.task, moment) == (1, "epoch"):
            signal.raise_signal(signal.SIGTERM)  # a background job may ignore SIGINT


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_resumed_run_logs_each_point_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with pytest.raises(Interrupted):
        run(QUICK, out=tmp_path, device="cpu", log="tensorboard", watch=StopInTheSecondTask())
    record = run(QUICK, out=tmp_path, device="cpu", log="tensorboard")
    curves = tensorboard_curves(tmp_path / record.name / "tensorboard")
    assert [v for _, v in curves["loss"]] == pytest.approx(expected(record)["loss"], rel=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_that_starts_over_starts_its_curves_over(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run(QUICK, out=tmp_path, device="cpu", log="tensorboard")
    record = run(QUICK, out=tmp_path, device="cpu", log="tensorboard", fresh=True)
    curves = tensorboard_curves(tmp_path / record.name / "tensorboard")
    assert [v for _, v in curves["loss"]] == pytest.approx(expected(record)["loss"], rel=1e-5)


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool, module in (("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match=rf"pip install 'scommer\[{tool}\]'"):
            open_log(tool, "a", {}, tmp_path, 0)


def test_invalid_logs_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tensorbord.*tensorboard"):
        run(QUICK, out=tmp_path, log="tensorbord", device="cpu")
    pytest.importorskip("tensorboard")
    with pytest.raises(UsageError, match="--out"):
        run(QUICK, log="tensorboard", device="cpu")


def test_mlflow_holds_the_curves_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    record = run(QUICK, device="cpu", log="mlflow")
    client = mlflow.MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("scommer").experiment_id])
    assert found.info.run_name == record.name
    assert found.data.params["method"] == "er"
    history = client.get_metric_history(found.info.run_id, "loss")
    assert [m.value for m in history] == pytest.approx(expected(record)["loss"])


def test_wandb_writes_its_files_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    record = run(QUICK, out=tmp_path, device="cpu", log="wandb")
    assert list((tmp_path / record.name / "wandb").glob("offline-run-*/*.wandb"))


def test_the_log_of_a_run_that_cannot_begin_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`begin` fails where an earlier run cannot be removed."""
    closed = []

    class Log:
        def __init__(self, *_: Any) -> None: ...

        def scalars(self, step: int, values: Any) -> None: ...

        def close(self) -> None:
            closed.append(self)

    def fails(_: Any) -> None:
        raise RunError("cannot begin")

    monkeypatch.setitem(LOGS, "tensorboard", Log)
    monkeypatch.setattr("scommer.runs.run.Run.begin", fails)
    with pytest.raises(RunError, match="cannot begin"):
        run(QUICK, out=tmp_path, log="tensorboard", device="cpu")
    assert len(closed) == 1
