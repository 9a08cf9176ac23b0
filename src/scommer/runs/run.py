"""One experiment, from its start or its last checkpoint to its record."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch

from scommer import provenance
from scommer.device import Precision
from scommer.engine.learner import Learner, Moment
from scommer.engine.state import restore, state_of
from scommer.errors import RunError, ScommerError
from scommer.files import write_atomically
from scommer.runs import checkpoint
from scommer.runs.experiment import ADDED, Plan
from scommer.runs.facts import Progress, from_json, to_json
from scommer.runs.logs import open_log
from scommer.runs.options import RunOptions
from scommer.runs.progress import Watch
from scommer.runs.record import LONGEST, Record
from scommer.runs.recording import final_weights, record_of


@dataclass
class _Earlier:
    """A checkpoint's account of the run before it."""

    started: str
    seconds: float
    sources: list[str]


class Run:
    """An experiment that is being run, resumed from its last checkpoint if there is one."""

    def __init__(
        self, plan: Plan, options: RunOptions, watch: Watch, device: torch.device, precision: Precision
    ) -> None:
        e = plan.experiment
        self.plan, self.options, self.watch = plan, options, watch
        self.folder = folder = options.folder(plan.name)
        self.record: Record | None = None
        self.failure: ScommerError | None = None
        self.warned = False  # that training diverges
        self.again = bool(folder and not options.fresh and (folder / "record.json").exists())  # for the weights
        self.learner = Learner(
            plan.stream, plan.method, plan.training, buffer=e.buffer, seed=e.seed,
            device=device, precision=precision, capture=options.capture,
        )  # fmt: skip
        self.earlier: dict[str, Any] = {"started": provenance.now(), "seconds": 0.0, "sources": [provenance.sources()]}
        if folder and not options.fresh and (saved := checkpoint.load(folder, watch.warn)):
            self._resume(*saved)
            if self.earlier["sources"][-1] != provenance.sources():
                watch.warn("the code has changed since this run was started: its record will say so")
                self.earlier["sources"].append(provenance.sources())
        self.resumed_at = self.saved_at = self.shown_at = time.monotonic()
        self.saved_steps = self.learner.steps[0]
        about = plan.facts | plan.settings
        self.log = open_log(options.log, plan.name, about, folder, self.saved_steps) if options.log else None

    def _resume(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        if (found := values.get("plan", self.plan.identity)) != self.plan.identity:  # early ones do not say
            raise RunError(
                f"the checkpoint in {self.folder} belongs to another run ({_difference(found, self.plan)}): "
                f"move it away, or start over with --fresh"
            )
        for name, here in self._device().items():
            if values.get(name, here) != here:
                raise RunError(
                    f"the run in {self.folder} was started with --{name} {values[name]}, not {here}: "
                    f"resume it with that, or start over with --fresh"
                )
        try:
            restore(self.learner, tensors, values)
            self.earlier = vars(from_json(_Earlier, {name: values[name] for name in self.earlier}))
            if not self.earlier["sources"] or not 0 <= self.earlier["seconds"] < LONGEST:
                raise ValueError("its history is incomplete")
        except Exception as e:  # whatever a file may hold
            raise RunError(
                f"the checkpoint in {self.folder} does not fit this run ({type(e).__name__}: {e}): "
                "start over with --fresh"
            ) from e

    def close(self) -> None:
        """Close the log, if there is one."""
        if self.log:
            try:
                self.log.close()
            except Exception as e:
                self._lose_log(e)

    def begin(self) -> None:
        """Show the progress; when starting over, remove an earlier run's files, unless the disk is full."""
        self.show_progress()
        if self.folder and self.options.fresh:
            try:
                checkpoint.clear(self.folder)
                for name in ("weights.safetensors", "record.json", "arrays.npz"):  # a record is never without arrays
                    (self.folder / name).unlink(missing_ok=True)
            except OSError as e:
                raise RunError(f"cannot remove {e.filename}: {e.strerror or e}; give another folder with --out") from e
            self.show_progress()

    def note(self, moment: Moment) -> None:
        """Log the loss of an epoch or the accuracies after a task; warn once if training diverges."""
        learner, values = self.learner, {}
        if moment == "epoch" and self.log:
            values["loss"] = learner.curve[-1]  # waits for a GPU
        if moment == "epoch" and not self.warned and (trouble := learner.divergence()):
            self.watch.warn(f"{self.plan.name}, task {learner.task + 1}, epoch {learner.epoch}: {trouble}")
            self.warned = True
        if not self.log or moment == "step":
            return
        if moment == "task":
            known = learner.tasks_learned
            for view, rows in learner.scores.items():
                for setting in self.plan.stream.evaluation_settings:
                    row = getattr(rows[-1], setting)
                    values[f"{view}/{setting}/mean"] = float(row[:known].mean())
                    values |= {f"{view}/{setting}/task {i + 1}": float(a) for i, a in enumerate(row[:known])}
        try:
            self.log.scalars(learner.steps[0], values)
        except Exception as e:  # whatever a tool raises when a disk is full or a server does not answer
            self._lose_log(e)

    def _lose_log(self, error: Exception) -> None:
        """Continue without a log: the result does not depend on it."""
        self.log = None
        why = f"{self.options.log} failed ({type(error).__name__}: {error})"
        self.watch.warn(f"{self.plan.name}: its curves are incomplete, {why}")

    def steps_left(self) -> int:
        """Return how many steps remain."""
        done, steps = self.learner.steps
        return steps - done

    def history(self) -> dict[str, Any]:
        """Return when the run was started, how long it has taken, and its code and device."""
        seconds = self.earlier["seconds"] + max(0.0, time.monotonic() - self.resumed_at)
        return {**self.earlier, **self._device(), "seconds": seconds}

    def _device(self) -> dict[str, str]:
        return {"device": self.learner.device.type, "precision": self.learner.precision}

    def save(self) -> None:
        """Write a checkpoint; raise an error instead if the loss is not finite."""
        if not self.folder:
            return
        self.learner.mean_loss()  # raises the error
        tensors, values = state_of(self.learner)
        about = self.history() | {"plan": self.plan.identity, "again": self.again}
        checkpoint.save(self.folder, tensors, values | about)
        self.saved_at, self.saved_steps = time.monotonic(), self.learner.steps[0]
        self.show_progress()

    def show_progress(self) -> None:
        """Write what `scommer show` prints for an unfinished run."""
        self.shown_at = time.monotonic()
        if self.folder:
            learner = self.learner
            progress = Progress(
                name=self.plan.name,
                steps=list(learner.steps),
                saved=self.saved_steps,
                task=learner.task,
                epoch=learner.epoch,
                tasks=len(learner.phases),
                epochs=learner.epochs,
                scores={view: rows[-1].class_il.tolist() for view, rows in learner.scores.items()},
                failure=str(self.failure) if self.failure else None,
            )
            write_atomically(self.folder / "progress.json", json.dumps(to_json(progress)).encode())

    def fail(self, error: ScommerError) -> None:
        """Note why the run cannot continue, also for `scommer show`."""
        self.failure = error
        with suppress(ScommerError):  # the disk may be full
            self.show_progress()

    def finish(self, weights: bool, together: int) -> None:
        """Write the record and, if requested, the weights; then remove the checkpoints."""
        record = record_of(self.plan, self.learner, self.history() | {"together": together})
        if self.folder:
            if weights:
                content = safetensors.torch.save(final_weights(self.learner))
                write_atomically(self.folder / "weights.safetensors", content)
            record.save(self.folder)
            with suppress(OSError):  # the next command tries again
                checkpoint.clear(self.folder)
        self.record = record


def _difference(identity: str, plan: Plan) -> str:
    """Describe how another run's identity differs from a plan."""
    try:
        facts, settings, fingerprint, *_ = json.loads(identity)
        there, here = {**ADDED, **settings, **facts}, {**plan.settings, **plan.facts}
        changes = [f"{name} {there.get(name)}, not {here[name]}" for name in here if there.get(name) != here[name]]
        changes += ["other images"] if fingerprint != plan.stream.fingerprint else []
    except (ValueError, TypeError, AttributeError):
        changes = []
    return "; ".join(changes[:3]) or "of an unknown kind"
