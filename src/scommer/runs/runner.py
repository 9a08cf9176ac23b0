"""Run experiments to their records: side by side, with checkpoints, resumable at any step."""

import gc
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from scommer.device import choose_device, choose_precision, computing_on
from scommer.engine.learner import Moment
from scommer.errors import RunError, ScommerError, UsageError
from scommer.provenance import sources
from scommer.runs import checkpoint
from scommer.runs.experiment import Experiment, prepare
from scommer.runs.options import RunOptions
from scommer.runs.progress import Watch, passed
from scommer.runs.record import Record
from scommer.runs.run import Run
from scommer.streams import Stream

PROGRESS_SECONDS = 5.0  # between two updates of progress.json
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last when the terminal is closed


def run(experiment: Experiment, options: RunOptions | None = None, **keywords: Any) -> Record:
    """Run an experiment, or resume it from its last checkpoint, and return its record.

    Give RunOptions, its fields as keywords, or both. With `out`, the run has a folder `out/NAME`: checkpoints while it
    runs, its record when it is done. A finished run is read, not repeated, unless `fresh`. `weights` keeps the final
    weights too. `data` is the folder of the data sets, `device` and `precision` say where and how to compute, `capture`
    replays a step on a GPU as one graph. After `minutes`, an unfinished run is saved and stopped with the error TimeUp.
    `checkpoint_seconds` is the longest time between checkpoints. `watch` follows the run, and True shows its progress;
    `log` names a tool of `scommer.runs.logs` that draws its curves.
    """
    (record,) = run_together([experiment], options, **keywords)
    return record


def run_together(experiments: Sequence[Experiment], options: RunOptions | None = None, **keywords: Any) -> list[Record]:
    """Run experiments side by side, one step of each in turn; options are those of `run`.

    Each gives the same record as when run alone. One that fails does not stop the others: the error is raised
    at the end and has their `records`.
    """
    options = replace(options or RunOptions(), **keywords)
    end = inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    experiments = list(experiments)
    for e in experiments:
        if not isinstance(e, Experiment):
            raise UsageError(f"a {type(e).__name__} is not an experiment: give one, as in Experiment('s-digits')")
    watch, device = options.watch if isinstance(options.watch, Watch) else Watch(), choose_device(options.device)
    precision = choose_precision(options.precision, device)
    if device.type == "cuda":
        gc.collect()  # learners and their graphs refer to each other: earlier ones may still hold GPU memory
    loaded: dict[tuple[str, float], Stream] = {}
    plans = [prepare(e, Path(options.data) if options.data else None, loaded) for e in experiments]
    for plan in plans:
        plan.stream.check_test_images()
    names = [plan.name for plan in plans]
    records: dict[str, Record] = {}
    failures: dict[str, ScommerError] = {}
    with ExitStack() as resources:
        threads = 1 if all(plan.threads == 1 for plan in plans) else None
        resources.enter_context(computing_on(device, precision, threads=threads))
        runs: list[Run] = []
        for name, plan in dict(zip(names, plans, strict=True)).items():
            folder = options.folder(name)
            try:
                if folder:
                    resources.enter_context(checkpoint.locked(folder))
                    if not options.fresh and (record := _finished(folder, options, watch)):
                        records[name] = record
                        continue
                runs.append(Run(plan, options, watch, device, precision))
                resources.callback(runs[-1].close)
            except ScommerError as e:
                failures[name] = e
        for warning in dict.fromkeys(w for one in runs for w in (*one.plan.warnings, *one.plan.slow_on(device))):
            watch.warn(warning)  # once for all seeds
        for one in runs:  # only now, because --fresh removes earlier results
            try:
                one.begin()
            except ScommerError as e:
                one.failure = e
        if ready := [one for one in runs if not one.failure]:
            _train(ready, options, watch, end)
    records |= {one.plan.name: one.record for one in runs if one.record}
    failures |= {one.plan.name: one.failure for one in runs if one.failure}
    if len(failures) == len(set(names)) and len({str(e) for e in failures.values()}) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise Failed(failures, list(records.values()))
    return [records[name] for name in names]


def _finished(folder: Path, options: RunOptions, watch: Watch) -> Record | None:
    """Return the record of a run that was finished with these options, or None if it must be run."""
    if not (folder / "record.json").exists():
        return None
    if options.weights and not (folder / "weights.safetensors").exists():
        watch.warn(f"{folder.name} is finished, but its weights were not kept: training it again")
        return None
    record = Record.load(folder)
    was = {"precision": record.device.precision, "device": record.device.type}
    for name, wanted in (("precision", options.precision), ("device", options.device)):
        if wanted and was[name] and wanted.split(":")[0] != was[name]:
            raise RunError(
                f"the run in {folder} was finished with --{name} {was[name]}, not {wanted}: "
                f"give another folder with --out, or start over with --fresh"
            )
    if record.code.sources != sources():
        watch.warn(f"{folder.name} was finished by another version of the code: run it again with --fresh")
    if (folder / "weights.safetensors").exists() or not checkpoint.trains_again(folder):  # for weights
        with suppress(OSError):  # the folder may be read-only
            checkpoint.clear(folder)  # left by a process that was killed
    return record


def _train(runs: list[Run], options: RunOptions, watch: Watch, end: float) -> None:
    """Take a step of each run in turn until each has its record or a failure, or the time is up."""
    active = {run: run.learner.learn() for run in runs}
    watched = max(active, key=Run.steps_left)
    watch.begin(watched.plan, watched.learner, len(runs))
    try:
        with interruptible() as stops:

            def check() -> None:
                """Abandon the end of a task if there is a reason to stop; it is repeated when the run is resumed."""
                if stops or time.monotonic() >= end:
                    raise _Abandoned

            for one in runs:
                one.learner.check = check
            abandoned = False  # a clock that is set back changes nothing about it
            while active and not abandoned and not stops and time.monotonic() < end:
                for one, moments in list(active.items()):
                    try:
                        moment = _advance(moments, stops)
                        if moment is None:
                            one.finish(options.weights, len(runs))
                            del active[one]
                            continue
                        one.note(moment)
                        if moment == "task":
                            watch.after_task(one.plan, one.learner)
                        if one is watched:
                            watch.moment(one.learner, moment)
                        if passed(options.checkpoint_seconds, one.saved_at):
                            one.save()
                        elif moment == "task" or passed(PROGRESS_SECONDS, one.shown_at):
                            one.show_progress()
                    except _Abandoned:
                        abandoned = True
                        break
                    except (BrokenPipeError, SystemExit):  # the reader of our output is gone; rich raises the latter
                        stops.append(signal.SIGPIPE)
                    except ScommerError as e:
                        one.fail(e)
                        del active[one]
                        if active:
                            watched = max(active, key=Run.steps_left)
                            _warn(watch, f"{one.plan.name} failed, the others continue: {e}")
            if saved := [one for one in active if _save(one, watch)]:
                where = _place_and_remedy(saved)
                raise Interrupted(f"stopped {where}") if stops else TimeUp(f"time is up {where}")
    finally:
        watch.end()


def _advance(moments: Iterator[Moment], stops: list[int]) -> Moment | None:
    """Continue to the next moment. If a method stops in between, its learner is inconsistent and must not be saved."""
    try:
        return next(moments, None)
    except (BrokenPipeError, SystemExit) as e:  # a method of a plugin may print
        stops.append(signal.SIGPIPE)
        raise RunError(
            f"stopped in the middle of a step ({type(e).__name__}): "
            "run the same command to resume from the last checkpoint"
        ) from e


def _warn(watch: Watch, message: str) -> None:
    """Show a warning if anybody reads it; a closed output must not prevent saving runs."""
    with suppress(BrokenPipeError, SystemExit):
        watch.warn(message)


def _save(run: Run, watch: Watch) -> bool:
    """Save a run that is stopped, and return whether that worked: the others are saved in any case."""
    try:
        run.save()
    except ScommerError as e:
        run.failure = e
        _warn(watch, f"{run.plan.name} was not saved: {e}")
    return run.failure is None


class _Abandoned(Exception):
    """The end of a task, or an evaluation, was not finished. The learner is as it was before."""


class Failed(RunError):
    """Some of several runs failed, for the reasons in `failures`, by name; `records` are those of the others."""

    def __init__(self, failures: Mapping[str, ScommerError], finished: list[Record]) -> None:
        super().__init__("; ".join(f"{name}: {failure}" for name, failure in failures.items()))
        self.failures, self.records = dict(failures), finished


class Interrupted(KeyboardInterrupt):
    """Stopped by a signal, after everything was saved."""


class TimeUp(ScommerError):
    """Stopped when the time was up, after everything was saved."""

    exit_code = 0


def _place_and_remedy(runs: Sequence[Run]) -> str:
    """Return where the first run was stopped, and how to resume all of them."""
    first = runs[0]
    task, epoch = first.learner.place
    folders = ", ".join(str(run.folder) for run in runs)
    command = "the same command without --fresh" if first.options.fresh else "the same command"
    saved = f"saved in {folders}; run {command} to resume" if first.folder else "nothing was saved: no folder was given"
    return f"at task {task}, epoch {epoch}: {saved}"


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Collect signals such as Ctrl-C instead of stopping in the middle of a step; a second one stops at once."""
    stops: list[int] = []

    def note(number: int, frame: object) -> None:
        if stops:
            raise KeyboardInterrupt
        stops.append(number)

    main = threading.current_thread() is threading.main_thread()  # other threads cannot handle signals
    handled = [s for s in STOP_SIGNALS if main and signal.getsignal(s) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {s: signal.signal(s, note) for s in handled}
    try:
        yield stops
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
