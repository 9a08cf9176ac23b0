"""An experiment: frozen, resolved to a plan, run to a record, resumable at any moment."""

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from scommer import checkpoint, presets, record as records, streams
from scommer.errors import RunError, UsageError, unknown
from scommer.evaluate import summary
from scommer.files import write_atomically
from scommer.learner import Learner, Moment
from scommer.methods import METHODS, Method
from scommer.record import Record
from scommer.streams import Stream
from scommer.training import Training


@dataclass(frozen=True)
class Experiment:
    """One cell of a table: a stream, a method, a buffer, a seed.

    `stream` is a name of `scommer list` or a Stream of your own; `settings` override the presets.
    """

    stream: str | Stream
    method: str = "scommer"
    buffer: int = 200
    seed: int = 0
    variant: str = "official"
    validation: float = 0.0  # share of the training images that is scored instead of the test images
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """An experiment with everything looked up."""

    experiment: Experiment
    stream: Stream
    method: Method
    training: Training
    settings: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """The experiment as plain values."""
        e = self.experiment
        buffer = e.buffer if self.method.draws else None
        return {
            "stream": self.stream.name, "method": e.method, "buffer": buffer, "seed": e.seed,
            "variant": e.variant, "validation": e.validation,
        }  # fmt: skip

    @property
    def name(self) -> str:
        """A folder name: readable, and different for different settings."""
        f = self.facts
        content = json.dumps([f, self.settings, self.stream.fingerprint], sort_keys=True)
        parts = [f["stream"], f["method"], *([f["buffer"]] if f["buffer"] else []), f"seed{f['seed']}"]
        return "-".join([*map(str, parts), sha256(content.encode()).hexdigest()[:6]])


class Watch:
    """What follows a run. This one says nothing; the command line has others."""

    def begin(self, plan: Plan, learner: Learner) -> None: ...

    def moment(self, learner: Learner, moment: Moment) -> None: ...

    def warn(self, message: str) -> None: ...

    def end(self) -> None: ...


def prepare(experiment: Experiment, data: Path | None = None) -> Plan:
    """Looks up all settings first, then the data: a wrong name costs no time."""
    e = experiment
    if e.method not in METHODS:
        raise unknown("method", e.method, METHODS)
    if e.buffer < 1 and METHODS[e.method].draws:
        raise UsageError(f"a buffer of {e.buffer} holds nothing to replay: give at least 1 (or --method sgd)")
    if isinstance(e.stream, str) and e.stream not in streams.STREAMS:
        raise unknown("stream", e.stream, streams.STREAMS)
    name = e.stream if isinstance(e.stream, str) else e.stream.name
    method, training = presets.resolve(name, e.method, e.buffer, e.variant, e.settings)
    stream = streams.load(e.stream, data, e.validation) if isinstance(e.stream, str) else e.stream
    if not presets.known(name):
        overrides = {**_fitting(stream, method, training), **e.settings}
        method, training = presets.resolve(name, e.method, e.buffer, e.variant, overrides)
    return Plan(e, stream, method, training, presets.as_dict(method, training))


def _fitting(stream: Stream, method: Method, training: Training) -> dict[str, Any]:
    """For a stream that no preset knows: settings that follow its images and its length."""
    images = stream.data.train_images
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    std = x.std((0, 2, 3)).clamp(min=1e-3)
    steps = sum(map(len, stream.phases())) / len(stream.tasks) * training.epochs / training.batch  # a task
    fitting = {
        "network": "small" if max(images.shape[2:]) <= 16 else "resnet18",
        "mean": [round(v, 4) for v in x.mean((0, 2, 3)).tolist()],
        "std": [round(v, 4) for v in std.tolist()],
        "warmup": int(0.6 * training.epochs),  # as 30 of the paper's 50
        "alpha": round(min(0.999, max(0.9, 1 - 5 / steps)), 4),  # the average spans a part of a task
    }
    averages = hasattr(method, "ramp")
    return {k: v for k, v in fitting.items() if hasattr(training, k) or (hasattr(method, k) and averages)}


def run(
    experiment: Experiment,
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    device: str | None = None,
    watch: Watch | None = None,
    checkpoint_seconds: float = 60.0,
    weights: bool = False,
    fresh: bool = False,
    capture: bool = True,
) -> Record:
    """Runs an experiment, or takes it up where it stopped, and returns its record.

    With `out`, the run has a folder `out/NAME` with checkpoints while it runs and its record when it is
    done; a finished run is read, not repeated, unless `fresh`. `weights` keeps the final weights too. On a
    GPU a step is replayed as one graph, unless `capture` is off.
    """
    watch = watch or Watch()
    plan = prepare(experiment, Path(data) if data else None)
    where = choose_device(device)
    if out is None:
        return _run(plan, where, watch, None, checkpoint_seconds, weights, capture)
    folder = Path(out) / plan.name
    with checkpoint.locked(folder):
        if fresh:
            checkpoint.clear(folder)
            (folder / "record.json").unlink(missing_ok=True)
        if (folder / "record.json").exists() and (not weights or (folder / "weights.safetensors").exists()):
            return Record.load(folder)
        return _run(plan, where, watch, folder, checkpoint_seconds, weights, capture)


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for, or a GPU where there is one."""
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as e:
        raise UsageError(
            f"device '{wanted}' cannot be used here ({str(e).splitlines()[0]}): try --device cpu"
        ) from None
    return device


def _run(
    plan: Plan, device: torch.device, watch: Watch, folder: Path | None, every: float, weights: bool, capture: bool
) -> Record:
    e = plan.experiment
    learner = Learner(
        plan.stream, plan.method, plan.training, buffer=e.buffer, seed=e.seed, device=device, capture=capture
    )
    started, spent = datetime.now(UTC).isoformat(timespec="seconds"), 0.0
    saved = checkpoint.load(folder, watch.warn) if folder else None
    if saved:
        tensors, values = saved
        learner.restore(tensors, values)
        started, spent = values["started"], values["seconds"]
        if values["sources"] != records.sources():
            watch.warn("the code has changed since this run was begun: its record will name the code of today")
    begun = last = time.monotonic()

    def keep() -> None:
        """Leaves a checkpoint, never of a broken state."""
        nonlocal last
        if folder:
            learner.mean_loss()
            tensors, values = learner.state()
            facts = {
                "started": started,
                "seconds": spent + time.monotonic() - begun,
                "sources": records.sources(),
            }
            checkpoint.save(folder, tensors, values | facts)
            done, steps = learner.steps
            progress = {"name": plan.name, "steps": [done, steps], "task": learner.task, "epoch": learner.epoch,
                        "tasks": len(learner.phases), "epochs": plan.training.epochs,
                        "scores": {v: s[-1].class_il.tolist() for v, s in learner.scores.items()}}  # fmt: skip
            write_atomically(folder / "progress.json", json.dumps(progress).encode())
            last = time.monotonic()

    watch.begin(plan, learner)
    try:
        with _interruptible() as asked:
            for moment in learner.learn():
                watch.moment(learner, moment)
                if moment == "task" or time.monotonic() - last >= every:
                    keep()
                if asked:
                    keep()
                    raise Interrupted(learner, folder)
    finally:
        watch.end()
    made = _record(plan, learner, device, started, spent + time.monotonic() - begun)
    if folder:
        if weights:
            content = safetensors.torch.save(final_weights(learner))
            write_atomically(folder / "weights.safetensors", content)
        made.save(folder)
        checkpoint.clear(folder)
        (folder / "progress.json").unlink(missing_ok=True)
    return made


class Interrupted(RunError):
    """Stopped on request, with everything saved."""

    exit_code = 130

    def __init__(self, learner: Learner, folder: Path | None) -> None:
        where = f"task {learner.task + 1}, epoch {learner.epoch + 1}"
        kept = f"saved in {folder}; run the same command to go on" if folder else "nothing was kept: no --out was given"
        super().__init__(f"stopped at {where}: {kept}")


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM instead of breaking off in the middle of a step; a second one breaks off."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    main = threading.current_thread() is threading.main_thread()  # others cannot take signals
    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM) if main}
    try:
        yield asked
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def final_weights(learner: Learner) -> dict[str, torch.Tensor]:
    """Named parameters and statistics of each memory, as it answers."""
    named = {}
    for view in learner.method.views(learner.mind, learner.calibration()):
        if "/" not in view.name:
            with view.memory.weights.borrowing(view.statistics):
                for name, t in view.memory.network.state_dict().items():
                    named[f"{view.name}.{name}"] = t.detach().cpu().clone()
    return named


def _record(plan: Plan, learner: Learner, device: torch.device, started: str, seconds: float) -> Record:
    matrices, scores, arrays = {}, {}, {"loss": np.array(learner.curve)}
    untrained = learner.untrained
    assert untrained is not None
    settings = ("class_il", "task_il") if plan.stream.kind == "class-il" else ("class_il",)
    for view, rows in learner.scores.items():
        r = {s: np.stack([getattr(row, s) for row in rows]) for s in settings}
        matrices[view] = {s: m.tolist() for s, m in r.items()}
        scores[view] = {s: summary(m, getattr(untrained, s), plan.stream.kind) for s, m in r.items()}
        last = rows[-1]
        arrays[f"class_accuracy/{view}"] = np.stack([row.class_accuracy for row in rows])
        arrays[f"class_probability/{view}"] = last.class_probability
        arrays[f"task_probability/{view}"] = np.array(
            [last.class_probability[list(task.classes)].sum() for task in plan.stream.tasks]
        )
        arrays[f"reliability/{view}"] = last.reliability
        if "/" not in view:
            arrays |= {f"activity/{view}/{l + 1}": a for l, a in enumerate(last.activity)}
    if learner.mind.code:
        code = learner.mind.code.tensors()
        arrays |= {name.replace(".", "/"): t.cpu().numpy() for name, t in code.items()}
    done, _ = learner.steps
    return Record(
        name=plan.name,
        experiment=plan.facts,
        settings=plan.settings,
        stream={
            "name": plan.stream.name,
            "kind": plan.stream.kind,
            "data": plan.stream.data.name,
            "fingerprint": plan.stream.fingerprint,
            "classes": list(plan.stream.data.class_names),
            "tasks": [list(task.classes) for task in plan.stream.tasks],
            "images": [len(task.train) for task in plan.stream.tasks],
        },
        inference=plan.method.inference,
        matrices=matrices,
        untrained={s: getattr(untrained, s).tolist() for s in settings},
        scores=scores,
        code=records.code_identity(),
        versions=records.versions(),
        device=records.device_facts(device),
        times={
            "started": started,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 2),
            "steps": done,
        },
        arrays=arrays,
    )
