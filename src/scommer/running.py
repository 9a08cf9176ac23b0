"""Running experiments to their records: side by side, with checkpoints, resumable at any moment."""

import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from scommer import checkpoint, record as records
from scommer.errors import RunError, ScommerError, UsageError
from scommer.experiment import Experiment, Plan, prepare
from scommer.files import write_atomically
from scommer.harvest import final_weights, record_of
from scommer.learner import Learner, Moment
from scommer.record import Record
from scommer.streams import Stream


class Watch:
    """What follows a run, or the longest of several side by side. This one says nothing."""

    def begin(self, plan: Plan, learner: Learner, together: int) -> None: ...

    def moment(self, learner: Learner, moment: Moment) -> None: ...

    def warn(self, message: str) -> None: ...

    def end(self) -> None: ...


def run(experiment: Experiment, **options: Any) -> Record:
    """Runs an experiment, or takes it up where it stopped, and returns its record; options as below."""
    (record,) = run_together([experiment], **options)
    return record


def run_together(
    experiments: Sequence[Experiment],
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    device: str | None = None,
    watch: Watch | None = None,
    checkpoint_seconds: float = 60.0,
    weights: bool = False,
    fresh: bool = False,
    capture: bool = True,
) -> list[Record]:
    """Runs experiments side by side, a step of each in turn; each is what it would be alone.

    With `out`, a run has a folder `out/NAME` with checkpoints while it runs and its record when it is done;
    a finished run is read, not repeated, unless `fresh`. `weights` keeps the final weights too. On a GPU a
    step is replayed as one graph, unless `capture` is off. A run that fails does not hold up the others.
    """
    watch, where = watch or Watch(), choose_device(device)
    loaded: dict[tuple[str, float], Stream] = {}
    plans = [prepare(e, Path(data) if data else None, loaded) for e in experiments]
    records_of: dict[int, Record] = {}
    with ExitStack() as held:
        runs: dict[int, Run] = {}
        for i, plan in enumerate(plans):
            folder = Path(out) / plan.name if out else None
            if folder:
                held.enter_context(checkpoint.locked(folder))
                if record := _finished(folder, watch, weights, fresh):
                    records_of[i] = record
                    continue
            runs[i] = Run(plan, where, watch, folder, capture)
        records_of |= _drive(runs, watch, checkpoint_seconds, weights)
    return [records_of[i] for i in range(len(plans))]


def _finished(folder: Path, watch: Watch, weights: bool, fresh: bool) -> Record | None:
    """The record of a run that needs no running."""
    if fresh:
        checkpoint.clear(folder)
        (folder / "record.json").unlink(missing_ok=True)
    if not (folder / "record.json").exists():
        return None
    if weights and not (folder / "weights.safetensors").exists():
        watch.warn(f"{folder.name} was finished without keeping its weights: training again")
        return None
    return Record.load(folder)


def _drive(runs: dict[int, "Run"], watch: Watch, every: float, weights: bool) -> dict[int, Record]:
    """A step of each run in turn until all have ended."""
    done: dict[int, Record] = {}
    failures: list[ScommerError] = []
    if not runs:
        return done
    lead = max(runs.values(), key=lambda run: run.learner.steps[1] - run.learner.steps[0])
    watch.begin(lead.plan, lead.learner, len(runs))
    try:
        with interruptible() as asked:
            going = {i: run.learner.learn() for i, run in runs.items()}
            while going:
                for i, moments in list(going.items()):
                    this = runs[i]
                    try:
                        moment = next(moments, None)
                        if moment is None:
                            done[i] = this.finish(weights)
                            del going[i]
                            continue
                        if this is lead:
                            watch.moment(this.learner, moment)
                        if moment == "task" or asked or time.monotonic() - this.kept >= every:
                            this.keep()
                    except ScommerError as e:  # the others go on
                        failures.append(e)
                        del going[i]
                if asked and going:
                    raise Interrupted([runs[i] for i in going])
    finally:
        watch.end()
    if failures:
        raise failures[0]
    return done


class Run:
    """One experiment on its way to a record, taken up from its last checkpoint where there is one."""

    def __init__(self, plan: Plan, device: torch.device, watch: Watch, folder: Path | None, capture: bool) -> None:
        e = plan.experiment
        self.plan, self.folder = plan, folder
        self.learner = Learner(
            plan.stream, plan.method, plan.training, buffer=e.buffer, seed=e.seed, device=device, capture=capture
        )
        self.story: dict[str, Any] = {"started": records.now(), "seconds": 0.0, "sources": [records.sources()]}
        if folder and (saved := checkpoint.load(folder, watch.warn)):
            self._take_up(*saved)
            if self.story["sources"][-1] != records.sources():
                watch.warn("the code has changed since this run was begun: its record will say so")
                self.story["sources"].append(records.sources())
        self.begun = self.kept = time.monotonic()

    def _take_up(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        try:
            self.learner.restore(tensors, values)
            self.story = {name: values[name] for name in self.story}
        except (KeyError, RuntimeError) as e:
            raise RunError(
                f"the checkpoint in {self.folder} is of another version ({e}): begin anew with --fresh"
            ) from e

    def told(self) -> dict[str, Any]:
        """When it was begun, how long it took, by which code."""
        return {**self.story, "seconds": self.story["seconds"] + time.monotonic() - self.begun}

    def keep(self) -> None:
        """Leaves a checkpoint, never of a broken state."""
        if not self.folder:
            return
        learner = self.learner
        learner.mean_loss()
        tensors, values = learner.state()
        checkpoint.save(self.folder, tensors, values | self.told())
        progress = {
            "name": self.plan.name,
            "steps": learner.steps,
            "task": learner.task,
            "epoch": learner.epoch,
            "tasks": len(learner.phases),
            "epochs": self.plan.training.epochs,
            "scores": {view: rows[-1].class_il.tolist() for view, rows in learner.scores.items()},
        }
        write_atomically(self.folder / "progress.json", json.dumps(progress).encode())
        self.kept = time.monotonic()

    def finish(self, weights: bool) -> Record:
        """Writes the record, and the weights where wanted, and clears away what is no longer needed."""
        record = record_of(self.plan, self.learner, self.told())
        if self.folder:
            if weights:
                content = safetensors.torch.save(final_weights(self.learner))
                write_atomically(self.folder / "weights.safetensors", content)
            record.save(self.folder)
            checkpoint.clear(self.folder)
            (self.folder / "progress.json").unlink(missing_ok=True)
        return record


class Interrupted(RunError):
    """Stopped on request, with everything saved."""

    exit_code = 130

    def __init__(self, runs: Sequence[Run]) -> None:
        first = runs[0]
        task = min(first.learner.task + 1, len(first.learner.phases))
        where = f"task {task}, epoch {first.learner.epoch + 1}"
        kept = f"saved in {', '.join(str(r.folder) for r in runs)}; run the same command to go on"
        super().__init__(f"stopped at {where}: {kept if first.folder else 'nothing was kept: no folder was given'}")


@contextmanager
def interruptible() -> Iterator[list[int]]:
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
