"""A set of runs as templates use it: scores of one memory in one setting, by seed."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from scommer.analysis.comparison import Difference
from scommer.analysis.measures import code_correlation, code_similarity, last_stage, learned_code, recency_bias
from scommer.analysis.selection import changed, settings_of
from scommer.errors import UsageError
from scommer.runs.record import Record

T = TypeVar("T")
LAST_EPOCHS = 5  # of a task, over which a document averages a loss


@dataclass(frozen=True)
class Runs:
    """Runs in the order of their seeds.

    `memory` is the memory to score (None: the one used for inference), `setting` is class_il or task_il. Only this
    class reads records.
    """

    records: tuple[Record, ...]
    memory: str | None = None
    setting: str = "class_il"

    def of(self, memory: str) -> "Runs":
        """Return the same runs, scored by another memory: `working`, `long_term/recalibrated`, …"""
        return replace(self, memory=memory)

    @property
    def task_il(self) -> "Runs":
        """The same runs, scored in Task-IL."""
        return replace(self, setting="task_il")

    @property
    def each(self) -> "list[Runs]":
        """Each run as a set of one."""
        return [replace(self, records=(r,)) for r in self.records]

    def seed(self, seed: int) -> "Runs":
        """Return the runs of one seed."""
        return self._where(f"seed {seed}", lambda run: run.seeds == [seed])

    def paired_with(self, other: "Runs") -> "Runs":
        """Return those of the runs whose seeds the other ones have too."""
        return self._where(f"the seeds {other.seeds}", lambda run: run.seeds[0] in other.seeds)

    def scored_by(self, memory: str) -> "Runs":
        """Return those of the runs that scored this memory, scored by it."""
        found = self._where(f"scores of {memory}", lambda run: memory in run.memories)
        return found.of(memory)

    def of_commit(self, commit: str) -> "Runs":
        """Return the runs made by one commit."""
        return self._where(f"commit {commit}", lambda run: run.commits[0].startswith(commit))

    def _where(self, what: str, meets: "Callable[[Runs], bool]") -> "Runs":
        found = [run for run in self.each if meets(run)]
        if not found:
            raise UsageError(f"none of {', '.join(self.names)} has {what}")
        return replace(self, records=tuple(r for run in found for r in run.records))

    @property
    def name(self) -> str:
        """The folder of the only run."""
        return self.names[self._only()]

    @property
    def names(self) -> list[str]:
        """The folders of the runs."""
        return [r.name for r in self.records]

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [r.experiment.seed for r in self.records]

    @property
    def changes(self) -> dict[str, Any]:
        """The settings in which the runs differ from their preset."""
        return self._one("changes", (changed(r) for r in self.records))

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the runs."""
        return self._one("settings", (settings_of(r) for r in self.records))

    @property
    def validation(self) -> float:
        """The share of the training images that was held out."""
        return self._one("shares of held-out images", (r.experiment.validation for r in self.records))

    @property
    def memories(self) -> list[str]:
        """The memories that were scored."""
        return self._one("memories", (list(r.scores) for r in self.records))

    @property
    def fingerprints(self) -> list[str]:
        """What identifies the images and tasks that each run learned."""
        return [r.stream.fingerprint for r in self.records]

    @property
    def tasks(self) -> list[list[int]]:
        """The classes of each task."""
        return self._one("tasks", (r.stream.tasks for r in self.records))

    @property
    def classes(self) -> list[str]:
        """The names of all classes."""
        return self._one("classes", (r.stream.classes for r in self.records))

    @property
    def commits(self) -> list[str]:
        """The commits that made the runs, each once."""
        return sorted({str(r.code.commit) for r in self.records})

    @property
    def precisions(self) -> list[str]:
        """The precisions of the runs, each once."""
        return sorted({str(r.device.precision) for r in self.records})

    @property
    def side_by_side(self) -> int:
        """How many runs shared the device."""
        return self._one("numbers of runs side by side", (r.times.together or 1 for r in self.records))

    @property
    def steps(self) -> int:
        """Training steps of all runs together."""
        return sum(r.times.steps for r in self.records)

    @property
    def minutes(self) -> float:
        """Time of the longest run."""
        return max(r.times.seconds for r in self.records) / 60

    @property
    def step_ms(self) -> float:
        """Time of one learner's step, the mean over runs."""
        return statistics.fmean(r.step_ms for r in self.records)

    @property
    def values(self) -> list[float]:
        """Accuracy at the end, of each run."""
        return [r.accuracy(self.memory, self.setting) for r in self.records]

    @property
    def value(self) -> float:
        """Accuracy at the end of the only run."""
        return self.values[self._only()]

    @property
    def mean(self) -> float:
        """Mean accuracy at the end."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> str:
        """Mean ± standard deviation of a sample over the runs."""
        return f"{self.mean:.2f} ± {statistics.stdev(self.values):.2f}"

    @property
    def min(self) -> float:
        """The lowest accuracy at the end."""
        return min(self.values)

    @property
    def max(self) -> float:
        """The highest accuracy at the end."""
        return max(self.values)

    @property
    def matrix(self) -> np.ndarray:
        """R[t, i], the mean over runs."""
        return np.asarray(np.mean([r.matrix(self.memory, self.setting) for r in self.records], axis=0))

    def after(self, task: int) -> list[float]:
        """Return the mean accuracy of each run on the tasks learned so far, after the given task (the first is 1)."""
        return [float(run.matrix[task - 1, :task].mean()) for run in self.each]

    @property
    def over_tasks(self) -> float:
        """Accuracy on all classes seen so far in GCIL, the mean over the ends of all tasks."""
        return float(self.matrix.diagonal().mean())

    @property
    def last_task(self) -> float:
        """Accuracy at the end on the classes of the last task."""
        return float(self._by_last_task()[0].mean())

    @property
    def other_classes(self) -> float:
        """Accuracy at the end on the classes that the last task does not have."""
        return float(self._by_last_task()[1].mean())

    @property
    def last_task_share(self) -> float:
        """Share of all correct answers at the end that are in classes of the last task, in percent."""
        last, others = self._by_last_task()
        return float(100 * last.sum() / (last.sum() + others.sum()))

    def _by_last_task(self) -> tuple[np.ndarray, np.ndarray]:
        accuracy = np.mean([run.array("class_accuracy")[-1] for run in self.each], axis=0)
        last = np.isin(np.arange(len(accuracy)), self.tasks[-1])
        return accuracy[last], accuracy[~last]

    @property
    def recency(self) -> list[float]:
        """How much more likely each run is to predict a class of the last task than an earlier one."""
        return [recency_bias(run.array("class_probability"), run.tasks) for run in self.each]

    @property
    def by_overlap(self) -> list[str]:
        """The classes of the only run, from the one whose code is least similar to the codes of the others."""
        similarity = code_similarity(self._activity())
        return self._classes_by(similarity.sum(1) - similarity.diagonal())

    @property
    def by_learned_code(self) -> list[str]:
        """The classes of the only run, from the one whose activity follows its learned P_s most closely."""
        return self._classes_by(-code_correlation(self._activity(), learned_code(self.records[self._only()])))

    def _activity(self) -> np.ndarray:
        r = self.records[self._only()]
        return r.arrays[f"activity/{r.inference}/{last_stage(r)}"]

    def _classes_by(self, scores: np.ndarray) -> list[str]:
        return [self.classes[c] for c in np.argsort(scores, kind="stable")]

    @property
    def final_loss(self) -> float:
        """Mean loss of the last epochs."""
        return float(self._loss()[-LAST_EPOCHS:].mean())

    @property
    def first_loss(self) -> float:
        """Mean loss of the last epochs of the first task."""
        epochs = int(self.settings["epochs"])
        return float(self._loss()[epochs - LAST_EPOCHS : epochs].mean())

    @property
    def worst_loss(self) -> float:
        """The highest loss of an epoch."""
        return float(self._loss().max())

    def _loss(self) -> np.ndarray:
        return self.records[self._only()].arrays["loss"]

    def array(self, name: str) -> np.ndarray:
        """Return an array that the only run has for its memory: class_accuracy, task_probability, …"""
        r = self.records[self._only()]
        return r.arrays[f"{name}/{self.memory or r.inference}"]

    def _only(self) -> int:
        if len(self.records) != 1:
            raise UsageError(f"expected one run, got {len(self.records)}: {', '.join(self.names)}")
        return 0

    def _one(self, what: str, values: Iterable[T]) -> T:
        first, *others = values
        if any(other != first for other in others):
            raise UsageError(f"{', '.join(self.names)} have different {what}")
        return first


@dataclass(frozen=True)
class Paired(Difference):
    """The difference a - b over pairs, with its 95 % interval."""

    @property
    def each(self) -> list[float]:
        """The difference of each pair."""
        return [x - y for x, y in zip(self.a, self.b, strict=True)]

    @property
    def ahead(self) -> int:
        """In how many pairs a is higher."""
        return sum(d > 0 for d in self.each)

    @property
    def behind(self) -> int:
        """In how many pairs a is lower."""
        return sum(d < 0 for d in self.each)


def paired(a: Runs | Sequence[float], b: Runs | Sequence[float]) -> Paired:
    """Return the difference between values, or between runs of the same seeds on the same stream."""
    if not isinstance(a, Runs) or not isinstance(b, Runs):
        return Paired("value", *(tuple(side.values if isinstance(side, Runs) else side) for side in (a, b)))
    if a.seeds != b.seeds:
        raise UsageError(f"seeds do not pair: {a.names} have {a.seeds}, {b.names} have {b.seeds}")
    if a.fingerprints != b.fingerprints:
        raise UsageError(f"{a.names} and {b.names} did not learn the same images in the same tasks")
    return Paired("accuracy", tuple(a.values), tuple(b.values))
