"""Run many experiments to their records, wherever there is room for them."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console

from scommer import plugins
from scommer.data import data_root
from scommer.errors import ScommerError, UsageError
from scommer.files import expand_user
from scommer.runs.checkpoint import is_locked
from scommer.runs.experiment import Experiment, prepare
from scommer.runs.options import RunOptions
from scommer.runs.record import Record
from scommer.runs.runner import Failed, Interrupted, TimeUp, interruptible
from scommer.streams import Stream
from scommer.sweeps.local import Local
from scommer.sweeps.places import Executor, executor
from scommer.sweeps.status import SweepWatch, sweep_watch_for
from scommer.sweeps.todo import Wanted, cohorts, wanted_run
from scommer.sweeps.worker import Job, Outcome

TICK = 0.5  # seconds between two looks at the runs
BUSY_SECONDS = 5.0  # between two looks at runs that other processes hold
TOGETHER = 4  # runs side by side on a GPU


def sweep(
    experiments: Sequence[Experiment],
    on: str | Executor = "local",
    *,
    out: Path | str,
    together: int | None = None,
    watch: SweepWatch | bool | None = None,
    minutes: float | None = None,
    **options: Any,
) -> Iterator[Record]:
    """Run experiments in many processes, and yield their records as they finish, those of earlier calls first.

    Each run has the folder `out/NAME`, the record and the checkpoints that `run` would give it. `on` is "local" for
    every GPU, or else every core, of this machine, "ray", "slurm", or one of Local, Ray and Slurm with options.
    `together` runs share a process: by default 4 on a GPU, 1 on a CPU. `watch=True` shows the progress. After
    `minutes`, what is running is saved, with the error TimeUp. `options` are those of `run`. A run that fails
    does not stop the others: the error is raised at the end, with the `failures` by name. A later call continues, and
    two calls with one folder share the work.
    """
    place = executor(on, device=options.get("device")) if isinstance(on, str) else on
    check_options(place, {**options, "out": out}, minutes)
    if together is not None and together < 1:
        raise UsageError(f"together = {together} is invalid: expected 1 or more")
    options = {**options, "out": expand_user(out).absolute(), "data": data_root(options.get("data")).absolute()}
    todo = wanted(experiments, options["out"], options["data"], options.get("weights", False))
    if not isinstance(watch, SweepWatch):
        watch = sweep_watch_for(Console()) if watch else SweepWatch()
    return Sweep(todo, place, options, together, watch, minutes).records()


def check_options(place: Executor, options: Mapping[str, Any], minutes: float | None) -> None:
    """Refuse options of runs that are invalid."""
    if options.get("fresh"):
        raise UsageError("a sweep continues what is there: give another folder, or remove the runs to repeat")
    there = {} if isinstance(place, Local) else {"precision": None, "device": None}  # known on its machines only
    RunOptions(**{**options, **there, "minutes": minutes})


def wanted(
    experiments: Sequence[Experiment],
    out: Path,
    data: Path | None = None,
    weights: bool = False,
    loaded: dict[tuple[str, float], Stream] | None = None,
) -> list[Wanted]:
    """Return the runs of experiments, each once: which are done, and how much is left of the others."""
    loaded = {} if loaded is None else loaded
    found: dict[str, Wanted] = {}
    for e in experiments:
        if not isinstance(e, Experiment):
            raise UsageError(f"a {type(e).__name__} is not an experiment: give one, as in Experiment('s-digits')")
        plan = prepare(e, data, loaded)
        plan.stream.check_test_images()
        found[plan.name] = wanted_run(plan, out, _is_done(out / plan.name, weights))
    return list(found.values())


def _is_done(folder: Path, weights: bool) -> bool:
    return all((folder / name).exists() for name in ("record.json", *(["weights.safetensors"] * weights)))


class Sweep:
    """Runs on their way to records."""

    def __init__(
        self, todo: Sequence[Wanted], place: Executor, options: dict[str, Any], together: int | None,
        watch: SweepWatch, minutes: float | None,
    ) -> None:  # fmt: skip
        self.todo = {w.name: w for w in todo}
        self.place, self.options, self.watch = place, options, watch
        self.end = inf if minutes is None else time.monotonic() + 60 * minutes
        together = together or (TOGETHER if place.on_gpu else 1)
        self.waiting = deque(cohorts(todo, together))
        self.held: set[str] = set()  # by other processes
        self.failed: dict[str, ScommerError] = {}
        self.found: list[Record] = []
        self.looked = time.monotonic()

    def records(self) -> Iterator[Record]:
        """Run everything, and yield each record once it is there."""
        self.watch.begin(list(self.todo.values()), self.options["out"])
        try:
            for w in self.todo.values():
                if w.done:
                    yield from self._read(w.name)
            if self.waiting:
                yield from self._run()
        finally:
            self.watch.end()
        if self.failed:
            raise Failed(self.failed, self.found)

    def _run(self) -> Iterator[Record]:
        submitted = 0
        with interruptible() as stops:
            try:
                while self.waiting or submitted or self.held:
                    if stops or time.monotonic() >= self.end:
                        break
                    while self.waiting and submitted < self.place.slots:
                        self.place.submit(self._job(self.waiting.popleft()))
                        submitted += 1
                    for job, outcome in self.place.wait(TICK):
                        submitted -= 1
                        yield from self._take(job, outcome)
                    yield from self._look_at_held()
                    self.watch.show()
            finally:
                if submitted:
                    self.watch.closing()
                self.place.close()
            left = sum(not self._is_done(name) for name in self.todo)
            out = self.options["out"]
            remedy = f"{left} runs are left, and what was done is saved in {out}; run the same command to resume"
            if stops:
                raise Interrupted(f"stopped: {remedy}")
            if self.waiting or submitted or self.held:
                raise TimeUp(f"time is up: {remedy}")

    def _job(self, cohort: Sequence[Wanted]) -> Job:
        self.watch.submitted([w.name for w in cohort])
        experiments, names = tuple(w.experiment for w in cohort), tuple(w.name for w in cohort)
        return Job(experiments, names, self.options, tuple(plugins.LOADED))

    def _take(self, job: Job, outcome: Outcome) -> Iterator[Record]:
        """Note how a job ended."""
        for message in outcome.warnings:
            self.watch.warn(message)
        again = []
        for name in job.names:
            if self._is_done(name) or name in outcome.failed:
                yield from self._read(name, outcome.failed.get(name))
            elif name in outcome.busy:
                self.held.add(name)
                self.watch.held(name)
            else:
                again.append(self.todo[name])  # stopped on its machine, and to be continued
        if again:
            self.waiting.append(again)

    def _read(self, name: str, failure: str | None = None) -> Iterator[Record]:
        """Yield the record of a run, or note why there is none."""
        try:
            record = Record.load(self.options["out"] / name)
        except UsageError as e:
            self.failed[name] = RunFailure(failure or str(e))
            self.watch.failed(name, failure or str(e))
            return
        self.found.append(record)
        self.watch.done(name, record)
        yield record

    def _is_done(self, name: str) -> bool:
        return _is_done(self.options["out"] / name, self.options.get("weights", False))

    def _look_at_held(self) -> Iterator[Record]:
        """Take over the runs that other processes have finished, or left."""
        if not self.held or 0 <= time.monotonic() - self.looked < BUSY_SECONDS:
            return
        self.looked = time.monotonic()
        for name in sorted(self.held):
            if self._is_done(name):
                self.held.remove(name)
                yield from self._read(name)
            elif not is_locked(self.options["out"] / name):
                self.held.remove(name)
                self.waiting.append([self.todo[name]])


class RunFailure(ScommerError):
    """Why a run of a sweep has no record."""
