"""Running experiments to their records: side by side, with checkpoints, resumable at any moment."""

import gc
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from scommer.device import choose_device, choose_precision, computing_on
from scommer.errors import RunError, ScommerError, UsageError
from scommer.provenance import sources
from scommer.runs import checkpoint
from scommer.runs.experiment import Experiment, prepare
from scommer.runs.options import RunOptions
from scommer.runs.progress import Watch
from scommer.runs.record import Record
from scommer.runs.run import Run
from scommer.streams import Stream

SHOWN = 5.0  # seconds between two tellings of how far a run is
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last where its terminal is gone


def run(experiment: Experiment, options: RunOptions | None = None, **keywords: Any) -> Record:
    """Run an experiment, or resume it from its last checkpoint, and return its record.

    Give RunOptions, its fields as keywords, or both. With `out`, the run has a folder `out/NAME`: checkpoints while it
    runs, its record when it is done. A finished run is read, not repeated, unless `fresh`. `weights` keeps the final
    weights too. `data` is the folder of the data sets, `device` and `precision` say where and how to compute, `capture`
    replays a step on a GPU as one graph. After `minutes`, an unfinished run is saved and stopped with the error TimeUp.
    `checkpoint_seconds` is the longest time between checkpoints. `watch` follows the run; `log` names a tool of
    `scommer.runs.logs` that draws its curves.
    """
    (record,) = run_together([experiment], options, **keywords)
    return record


def run_together(experiments: Sequence[Experiment], options: RunOptions | None = None, **keywords: Any) -> list[Record]:
    """Run experiments side by side, one step of each in turn; options are those of `run`.

    Each gives the same record as if it were run alone. One that fails does not stop the others: the error is raised
    at the end and has their `records`.
    """
    options = replace(options or RunOptions(), **keywords)
    experiments = list(experiments)
    for e in experiments:
        if not isinstance(e, Experiment):
            raise UsageError(f"a {type(e).__name__} is no experiment: give one, as in Experiment('s-digits')")
    watch, device = options.watch or Watch(), choose_device(options.device)
    precision = choose_precision(options.precision, device)
    if device.type == "cuda":
        gc.collect()  # learners and their graphs know each other: earlier ones may still hold GPU memory
    loaded: dict[tuple[str, float], Stream] = {}
    plans = [prepare(e, Path(options.data) if options.data else None, loaded) for e in experiments]
    for plan in plans:
        plan.stream.check_test_images()
    names = [plan.name for plan in plans]
    made: dict[str, Record] = {}
    failures: dict[str, ScommerError] = {}
    with ExitStack() as held:
        held.enter_context(computing_on(device, precision))
        runs: list[Run] = []
        for name, plan in dict(zip(names, plans, strict=True)).items():
            folder = options.folder(name)
            try:
                if folder:
                    held.enter_context(checkpoint.locked(folder))
                    if not options.fresh and (record := _finished(folder, options, watch)):
                        made[name] = record
                        continue
                runs.append(Run(plan, options, watch, device, precision))
            except ScommerError as e:
                failures[name] = e
        for this in runs:  # none before all can be
            try:
                this.begin()
            except ScommerError as e:
                this.failure = e
        if going := [this for this in runs if not this.failure]:
            _drive(going, options, watch)
    made |= {run.plan.name: run.record for run in runs if run.record}
    failures |= {run.plan.name: run.failure for run in runs if run.failure}
    if len(failures) == len(set(names)) and len({str(e) for e in failures.values()}) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise Failed(failures, list(made.values()))
    return [made[name] for name in names]


def _finished(folder: Path, options: RunOptions, watch: Watch) -> Record | None:
    """The record of a run that needs no running: it was finished as it is asked for."""
    if not (folder / "record.json").exists():
        return None
    if options.weights and not (folder / "weights.safetensors").exists():
        watch.warn(f"{folder.name} was finished without keeping its weights: training again")
        return None
    record = Record.load(folder)
    was = {"precision": record.device.get("precision"), "device": record.device.get("type")}
    for name, wanted in (("precision", options.precision), ("device", options.device)):
        if wanted and was[name] and wanted.split(":")[0] != was[name]:
            raise RunError(
                f"the run in {folder} was finished with --{name} {was[name]}, not {wanted}: "
                f"give another folder with --out, or begin anew with --fresh"
            )
    if record.code["sources"] != sources():
        watch.warn(f"{folder.name} was finished by other code than this: --fresh runs it again")
    if (folder / "weights.safetensors").exists() or not checkpoint.newer_than(folder / "record.json"):
        checkpoint.clear(folder)  # of a process that was killed at its end; newer ones train again for weights
    return record


def _drive(runs: list[Run], options: RunOptions, watch: Watch) -> None:
    """A step of each run in turn until each has its record, or a failure, or the time is over."""
    end = inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    going = {run: run.learner.learn() for run in runs}
    lead = max(going, key=Run.steps_left)  # the one that is watched
    watch.begin(lead.plan, lead.learner, len(runs))
    try:
        with interruptible() as asked:
            while going and not asked and time.monotonic() < end:
                for this, moments in list(going.items()):
                    try:
                        moment = next(moments, None)
                        if moment is None:
                            this.finish(options.weights, len(runs))
                            del going[this]
                            continue
                        this.note(moment)
                        if this is lead:
                            watch.moment(this.learner, moment)
                        if time.monotonic() - this.kept >= options.checkpoint_seconds:
                            this.keep()
                        elif moment == "task" or time.monotonic() - this.shown >= SHOWN:
                            this.show()
                    except (BrokenPipeError, SystemExit):  # whoever read along is gone; the latter is rich's way
                        asked.append(signal.SIGPIPE)
                    except ScommerError as e:
                        this.failure = e
                        del going[this]
                        if going:
                            watch.warn(f"{this.plan.name} failed, the others go on: {e}")
                            lead = max(going, key=Run.steps_left)
            saved = [this for this in going if _saved(this, watch)]
            if saved:
                raise Interrupted(saved) if asked else TimeUp(saved)
    finally:
        for this in runs:
            if this.log:
                this.log.close()
        watch.end()


def _saved(run: Run, watch: Watch) -> bool:
    """Leaves a checkpoint of a run that is stopped; where that cannot be, the others are saved all the same."""
    try:
        run.keep()
    except ScommerError as e:
        run.failure = e
        watch.warn(f"{run.plan.name} was not saved: {e}")
    return run.failure is None


class Failed(RunError):
    """Some of several runs failed; `records` are those of the others."""

    def __init__(self, failures: Mapping[str, ScommerError], finished: list[Record]) -> None:
        super().__init__("; ".join(f"{name}: {failure}" for name, failure in failures.items()))
        self.records = finished


class Interrupted(KeyboardInterrupt):
    """Stopped on request, with everything saved."""

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__(f"stopped {_where(runs)}")


class TimeUp(ScommerError):
    """Stopped when its time was over, with everything saved."""

    exit_code = 0

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__(f"time is up {_where(runs)}")


def _where(runs: Sequence[Run]) -> str:
    first = runs[0]
    task, epoch = first.learner.place
    folders = ", ".join(str(run.folder) for run in runs)
    command = "the same command without --fresh" if first.options.fresh else "the same command"
    kept = f"saved in {folders}; run {command} to go on" if first.folder else "nothing was kept: no folder was given"
    return f"at task {task}, epoch {epoch}: {kept}"


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Collects Ctrl-C and its like instead of breaking off in the middle of a step; a second one breaks off."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    main = threading.current_thread() is threading.main_thread()  # others cannot take signals
    heard = [s for s in STOPS if main and signal.getsignal(s) is not signal.SIG_IGN]  # nohup wants SIGHUP ignored
    before = {s: signal.signal(s, note) for s in heard}
    try:
        yield asked
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
