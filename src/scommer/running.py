"""Running an experiment to its record: checkpoints, resumption, interruption."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from scommer import checkpoint, record as records
from scommer.errors import RunError, UsageError
from scommer.evaluate import summary
from scommer.experiment import Experiment, Plan, prepare
from scommer.files import write_atomically
from scommer.learner import Learner, Moment
from scommer.record import Record


class Watch:
    """What follows a run. This one says nothing; the command line has others."""

    def begin(self, plan: Plan, learner: Learner) -> None: ...

    def moment(self, learner: Learner, moment: Moment) -> None: ...

    def warn(self, message: str) -> None: ...

    def end(self) -> None: ...


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
        if (folder / "record.json").exists():
            if not weights or (folder / "weights.safetensors").exists():
                return Record.load(folder)
            watch.warn("this run was finished without keeping its weights: training again")
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
    story: dict[str, Any] = {"started": _now(), "seconds": 0.0, "sources": [records.sources()]}
    if folder and (saved := checkpoint.load(folder, watch.warn)):
        _take_up(learner, *saved, folder)
        story = {name: saved[1][name] for name in story}
        if story["sources"][-1] != records.sources():
            watch.warn("the code has changed since this run was begun: its record will say so")
            story["sources"].append(records.sources())
    begun = last = time.monotonic()

    def told() -> dict[str, Any]:
        return {**story, "seconds": story["seconds"] + time.monotonic() - begun}

    def keep() -> None:
        """Leaves a checkpoint, never of a broken state."""
        nonlocal last
        if folder:
            learner.mean_loss()
            tensors, values = learner.state()
            checkpoint.save(folder, tensors, values | told())
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
    made = _record(plan, learner, device, told())
    if folder:
        if weights:
            content = safetensors.torch.save(final_weights(learner))
            write_atomically(folder / "weights.safetensors", content)
        made.save(folder)
        checkpoint.clear(folder)
        (folder / "progress.json").unlink(missing_ok=True)
    return made


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _take_up(learner: Learner, tensors: dict[str, torch.Tensor], values: dict[str, Any], folder: Path) -> None:
    try:
        learner.restore(tensors, values)
    except (KeyError, RuntimeError) as e:
        raise RunError(f"the checkpoint in {folder} is of another version ({e}): begin anew with --fresh") from None


class Interrupted(RunError):
    """Stopped on request, with everything saved."""

    exit_code = 130

    def __init__(self, learner: Learner, folder: Path | None) -> None:
        task = min(learner.task + 1, len(learner.phases))
        where = f"task {task}, epoch {learner.epoch + 1}"
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
                    named[f"{view.name}.{name}"] = t.cpu().clone(memory_format=torch.contiguous_format)
    return named


def _small(t: torch.Tensor) -> np.ndarray:
    """Probabilities and counts as figures need them, in half the space."""
    return t.cpu().numpy().astype(np.float16 if t.is_floating_point() else np.uint32)


def _record(plan: Plan, learner: Learner, device: torch.device, story: dict[str, Any]) -> Record:
    matrices, scores, arrays = {}, {}, {"loss": np.array(learner.curve)}
    untrained = learner.untrained
    assert untrained is not None
    settings = ("class_il", "task_il") if plan.stream.kind == "class-il" else ("class_il",)
    for view, rows in learner.scores.items():
        r = {s: np.stack([getattr(row, s) for row in rows]) for s in settings}
        matrices[view] = {s: m.round(6).tolist() for s, m in r.items()}
        scores[view] = {s: summary(m, getattr(untrained, s), plan.stream.kind) for s, m in r.items()}
        last = rows[-1]
        arrays[f"class_accuracy/{view}"] = np.stack([row.class_accuracy for row in rows])
        arrays[f"class_probability/{view}"] = last.class_probability
        arrays[f"task_probability/{view}"] = np.array(  # of predicting any class of the task
            [last.class_probability[list(task.classes)].sum() for task in plan.stream.tasks]
        )
        arrays[f"reliability/{view}"] = last.reliability
        if "/" not in view:
            arrays |= {f"activity/{view}/{l + 1}": a for l, a in enumerate(last.activity)}
    if learner.mind.code:
        code = learner.mind.code.tensors()
        arrays |= {name.replace(".", "/"): _small(t) for name, t in code.items()}
    done, _ = learner.steps
    return Record(
        name=plan.name,
        experiment=plan.facts,
        settings=plan.settings,
        stream={
            "name": plan.stream.name,
            "kind": plan.stream.kind,
            "data": plan.stream.data.name,
            "image_shape": list(plan.stream.data.image_shape),
            "fingerprint": plan.stream.fingerprint,
            "classes": list(plan.stream.data.class_names),
            "tasks": [list(task.classes) for task in plan.stream.tasks],
            "images": [len(task.train) for task in plan.stream.tasks],
        },
        inference=plan.method.inference,
        matrices=matrices,
        untrained={s: getattr(untrained, s).tolist() for s in settings},
        scores=scores,
        code={**records.code_identity(), "earlier": story["sources"][:-1]},
        versions=records.versions(),
        device=records.device_facts(device),
        times={
            "started": story["started"],
            "finished": _now(),
            "seconds": round(story["seconds"], 2),
            "steps": done,
        },
        arrays=arrays,
    )
