"""Optional curves while a run trains: TensorBoard, Weights & Biases, MLflow."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from scommer.errors import RunError, ScommerError, UsageError


class Log(Protocol):
    """Receives scalars by name, each with its step."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Log these values."""

    def close(self) -> None:
        """Write what is buffered, and close the log."""


def open_log(tool: str, name: str, settings: Mapping[str, Any], folder: Path | None, step: int) -> Log:
    """Open the log of the run `name` with a tool of LOGS. A resumed run logs again what came after `step`."""
    try:
        return LOGS[tool](name, settings, folder, step)
    except ScommerError:
        raise
    except Exception as e:  # whatever a tool raises
        raise RunError(f"--log {tool} cannot be used ({type(e).__name__}: {e}): fix that, or leave it out") from e


def _import_extra(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as e:
        raise UsageError(
            f"--log {extra} needs a package that is not installed ({e}): pip install 'scommer[{extra}]'"
        ) from e


class TensorBoard:
    """Event files in the run's folder; `tensorboard --logdir runs` shows all runs."""

    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path | None, step: int) -> None:
        if folder is None:
            raise UsageError("--log tensorboard writes into the run's folder: give one with --out")
        writer = _import_extra("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self.writer = writer(str(folder / "tensorboard"), purge_step=step + 1 if step else 0)
        self.writer.add_text("settings", "\n".join(f"    {k} = {v}" for k, v in settings.items()))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Weights & Biases, in the project $WANDB_PROJECT or "scommer"; a resumed run keeps its page."""

    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path | None, step: int) -> None:
        wandb = _import_extra("wandb", "wandb")
        project = os.environ.get("WANDB_PROJECT", "scommer")
        self.run = wandb.init(
            project=project, name=name, id=name, config=dict(settings), resume="allow", reinit="create_new",
            dir=None if folder is None else str(folder),
        )  # fmt: skip

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """MLflow at $MLFLOW_TRACKING_URI, in the experiment $MLFLOW_EXPERIMENT_NAME or "scommer"."""

    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path | None, step: int) -> None:
        self.client = _import_extra("mlflow", "mlflow").MlflowClient()
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "scommer")
        found = self.client.get_experiment_by_name(title)
        experiment = found.experiment_id if found else self.client.create_experiment(title)
        same = self.client.search_runs([experiment], f"attributes.run_name = '{name}'", max_results=1) if step else []
        if same:  # resumed
            self.id = same[0].info.run_id
        else:
            self.id = self.client.create_run(experiment, run_name=name).info.run_id
            for key, value in settings.items():
                self.client.log_param(self.id, key, value)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.id)


LOGS: dict[str, Callable[[str, Mapping[str, Any], Path | None, int], Log]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}
