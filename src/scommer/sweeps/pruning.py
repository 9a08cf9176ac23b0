"""What a search and its processes share: studies in the sweep's folder, and trials that are stopped after a task."""

from importlib import import_module
from pathlib import Path
from typing import Any

from scommer.engine.learner import Learner
from scommer.errors import UsageError
from scommer.runs.experiment import Plan
from scommer.runs.progress import Watch

STORAGE = "optuna.log"  # in the sweep's folder
TRIALS_FIRST = 5  # that are never stopped


class Pruned(Exception):
    """A trial is poor: its runs are given up."""


def open_study(out: Path, name: str) -> Any:
    """Return a study in a sweep's folder, as far as it is; several processes may use it at once."""
    try:
        optuna = import_module("optuna")
    except ImportError:
        raise UsageError("Optuna is not installed: pip install 'scommer[optuna]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = import_module("optuna.storages.journal")
    storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(out / STORAGE)))
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=TRIALS_FIRST),
    )  # fmt: skip
    # A search that continues draws other values than at its start.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), constant_liar=True)
    return study


class PruningWatch(Watch):
    """Reports the mean validation accuracy of a trial's runs after each task, and stops them if it is poor."""

    def __init__(self, out: Path, study: str, trial_id: int) -> None:
        self.trial = import_module("optuna").trial.Trial(open_study(out, study), trial_id)
        self.scores: dict[int, list[float]] = {}  # of each task, one for each run so far
        self.messages: list[str] = []

    def begin(self, plan: Plan, learner: Learner, together: int) -> None:
        self.together = together

    def after_task(self, plan: Plan, learner: Learner) -> None:
        row = learner.scores[plan.method.inference][-1].class_il[: learner.tasks_learned]
        reached = self.scores.setdefault(learner.task, [])
        reached.append(float(row.mean()))
        if len(reached) == self.together and learner.task < len(learner.phases):
            self.trial.report(sum(reached) / len(reached), learner.task)
            if self.trial.should_prune():
                raise Pruned

    def warn(self, message: str) -> None:
        self.messages.append(message)
