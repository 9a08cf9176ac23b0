"""Search for settings with Optuna: TPE, in a storage in the sweep's folder, poor trials stopped after a task."""

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from scommer import plugins
from scommer.errors import ScommerError, UsageError
from scommer.runs.experiment import Experiment
from scommer.runs.record import Record
from scommer.runs.runner import Interrupted, TimeUp, interruptible
from scommer.streams import Stream
from scommer.sweeps.grid import Grid
from scommer.sweeps.places import Executor
from scommer.sweeps.pruning import open_study
from scommer.sweeps.status import SweepWatch
from scommer.sweeps.sweep import TICK, RunFailure, check_options, wanted
from scommer.sweeps.todo import Wanted
from scommer.sweeps.worker import Job, Outcome

MOST_AT_ONCE = 16  # trials on a cluster: each one learns from those before it
RANGE = {"low", "high", "log", "step"}


@dataclass(frozen=True)
class _Trial:
    """A trial of a cell: an Optuna trial, and its runs."""

    study: Any
    trial: Any
    runs: list[Wanted]


class Search:
    """The trials of each stream, method and buffer of a grid, to the given number of each."""

    def __init__(self, grid: Grid, trials: int, out: Path, options: Mapping[str, Any]) -> None:
        if trials < 1:
            raise UsageError(f"trials = {trials} is invalid: expected 1 or more")
        if not grid.search:
            raise UsageError("a search needs ranges: give a TOML file with a table [search]")
        if not grid.validation:
            raise UsageError("a search needs validation images: give --validation, for example 0.1")
        if several := [name for name, values in grid.settings.items() if len(values) > 1]:
            raise UsageError(f"{several[0]} has several values: give one, or a range in [search]")
        for name, given in grid.search.items():
            _check_range(name, given)
        self.grid, self.trials, self.out, self.options = grid, trials, out, options
        out.mkdir(parents=True, exist_ok=True)
        self.studies = {cell: open_study(out, _study_name(grid, cell)) for cell in grid.cells()}
        self.optuna: Any = import_module("optuna")
        self.loaded: dict[tuple[str, float], Stream] = {}
        self.todo: dict[str, Wanted] = {}
        self.records: dict[str, Record] = {}
        self.failures: dict[str, ScommerError] = {}
        self._running: dict[tuple[str, int], _Trial] = {}  # by study and trial

    def run(self, place: Executor, watch: SweepWatch, minutes: float | None = None) -> None:
        """Run all trials that are missing; a search that was stopped continues with its unfinished trials."""
        check_options(place, self.options, minutes)
        end = None if minutes is None else time.monotonic() + 60 * minutes
        waiting = self._proposals()
        watch.begin([], self.out)
        try:
            with interruptible() as stops:
                try:
                    proposed = next(waiting, None)
                    while proposed or self._running:
                        if stops or (end is not None and time.monotonic() >= end):
                            break
                        while proposed and len(self._running) < min(place.slots, MOST_AT_ONCE):
                            self._submit(proposed, place, watch)
                            proposed = next(waiting, None)
                        for job, outcome in place.wait(TICK):
                            self._take(job, outcome, watch)
                        watch.show()
                finally:
                    if self._running:
                        watch.closing()
                    place.close()
                if proposed or self._running:
                    what = "stopped" if stops else "time is up"
                    message = f"{what}: the trials are saved in {self.out}; run the same command to resume"
                    raise Interrupted(message) if stops else TimeUp(message)
        finally:
            watch.end()

    def _proposals(self) -> Iterator[_Trial]:
        """Yield the trials to run: unfinished ones of an earlier command, then new ones, of each cell in turn."""
        states = self.optuna.trial.TrialState
        for cell, study in self.studies.items():
            for old in study.trials:
                settings = self._settings(cell, old.params)
                if old.state == states.RUNNING:
                    yield self._made(study, self.optuna.trial.Trial(study, old._trial_id), cell, settings)
                elif old.state == states.COMPLETE:
                    self._remember(self._made(study, None, cell, settings).runs)
        for _ in range(self.trials):
            for cell, study in self.studies.items():
                if sum(old.state != states.FAIL for old in study.trials) < self.trials:
                    trial = study.ask()
                    yield self._made(study, trial, cell, self._settings(cell, self._suggested(trial, cell[1])))

    def _suggested(self, trial: Any, method: str) -> dict[str, Any]:
        """Return values that Optuna proposes."""
        ranges = self.grid.chosen_for(method, self.grid.search)
        return {name: _suggest(trial, name, given) for name, given in ranges.items()}

    def _settings(self, cell: tuple[str, str, int], found: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {name: value for name, (value,) in self.grid.chosen_for(cell[1], self.grid.settings).items()}
        return {**fixed, **found}

    def _made(self, study: Any, trial: Any, cell: tuple[str, str, int], settings: dict[str, Any]) -> _Trial:
        g = self.grid
        experiments = [Experiment(*cell, seed, g.variant, g.validation, settings) for seed in g.seeds]
        return _Trial(study, trial, wanted(experiments, self.out, self.options["data"], loaded=self.loaded))

    def _remember(self, runs: Sequence[Wanted]) -> None:
        for w in runs:
            self.todo[w.name] = w
            if (self.out / w.name / "record.json").exists():
                self.records[w.name] = Record.load(self.out / w.name)

    def _submit(self, made: _Trial, place: Executor, watch: SweepWatch) -> None:
        names = tuple(w.name for w in made.runs)
        key = made.study.study_name, made.trial._trial_id
        experiments = tuple(w.experiment for w in made.runs)
        self._running[key] = made
        watch.add(made.runs)
        watch.submitted(names)
        place.submit(Job(experiments, names, self.options, tuple(plugins.LOADED), trial=key))

    def _take(self, job: Job, outcome: Outcome, watch: SweepWatch) -> None:
        """Tell Optuna how a trial ended, unless another process has it."""
        assert job.trial
        made = self._running.pop(job.trial)
        states = self.optuna.trial.TrialState
        for message in outcome.warnings:
            watch.warn(message)
        if outcome.busy:
            return
        self._remember(made.runs)
        done = [self.records[w.name] for w in made.runs if w.name in self.records]
        for record in done:
            watch.done(record.name, record)
        if outcome.pruned:
            made.study.tell(made.trial, state=states.PRUNED)
            for w in made.runs:
                watch.stopped(w.name)
        elif len(done) < len(made.runs):
            made.study.tell(made.trial, state=states.FAIL)
            for name, why in outcome.failed.items():
                self.failures[name] = RunFailure(why)
                watch.failed(name, why)
        else:
            made.study.tell(made.trial, statistics.fmean(r.accuracy() for r in done))


def _study_name(grid: Grid, cell: tuple[str, str, int]) -> str:
    """Return a name for the trials of a cell: another one if anything is searched or trained differently."""
    given = [grid.chosen_for(cell[1], values) for values in (grid.settings, grid.search)]
    about = json.dumps([*given, grid.seeds, grid.variant, grid.validation], sort_keys=True, default=str)
    return "-".join([*map(str, cell), sha256(about.encode()).hexdigest()[:6]])


def _check_range(name: str, given: Any) -> None:
    if isinstance(given, list) and given:
        return
    numbers = isinstance(given, Mapping) and {"low", "high"} <= given.keys() <= RANGE
    ends = [given[key] for key in ("low", "high")] if numbers else []
    if not ends or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in ends) or ends[0] >= ends[1]:
        raise UsageError(
            f"the range of {name} is {given!r}: write {{low = 0.01, high = 0.3, log = true}}, or a list of values"
        )
    if given.get("log") and (ends[0] <= 0 or "step" in given):
        raise UsageError(f"the range of {name} is logarithmic: give a low above 0, and no step")


def _suggest(trial: Any, name: str, given: Any) -> Any:
    if isinstance(given, list):
        return trial.suggest_categorical(name, given)
    options = {key: given[key] for key in ("log", "step") if key in given}
    if isinstance(given["low"], int) and isinstance(given["high"], int):
        return trial.suggest_int(name, given["low"], given["high"], **options)
    return trial.suggest_float(name, given["low"], given["high"], **options)
