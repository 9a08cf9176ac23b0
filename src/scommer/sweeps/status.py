"""What a sweep shows: one live table in a terminal, plain lines elsewhere."""

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scommer.errors import RunWarning, UsageError, printable
from scommer.runs.facts import Progress
from scommer.runs.progress import SLOW_STEPS, clock, passed
from scommer.runs.record import Record, load_progress
from scommer.sweeps.todo import Wanted

State = Literal["waiting", "running", "done", "failed", "stopped early"]
STATES: tuple[State, ...] = get_args(State)
LOOK_SECONDS = 1.0  # between two looks at the progress of all runs
LINE_SECONDS = 30.0  # between two lines about all runs
FAILURES = 3  # the last ones, in the live table


class SweepWatch:
    """Follows a sweep. This one only shows warnings, each once."""

    def __init__(self) -> None:
        self.warned: set[str] = set()

    def begin(self, todo: Sequence[Wanted], out: Path) -> None:
        self.todo = todo

    def add(self, todo: Sequence[Wanted]) -> None:
        """More runs are wanted: a search does not know all of them at once."""

    def submitted(self, names: Sequence[str]) -> None: ...

    def stopped(self, name: str) -> None:
        """A run of a poor trial was given up."""

    def held(self, name: str) -> None:
        """Another process holds a run."""

    def done(self, name: str, record: Record) -> None: ...

    def failed(self, name: str, message: str) -> None: ...

    def show(self) -> None:
        """Show the progress; called about twice a second."""

    def closing(self) -> None:
        """Runs are being stopped and saved."""

    def end(self) -> None: ...

    def warn(self, message: str) -> None:
        if message not in self.warned:
            self.warned.add(message)
            self.show_warning(message)

    def show_warning(self, message: str) -> None:
        warnings.warn(message, RunWarning, stacklevel=4)


class _Run:
    """What is known of a run from its progress.json: the same for a run of this machine and of any other."""

    def __init__(self, wanted: Wanted, folder: Path) -> None:
        self.name, self.path = wanted.name, folder / "progress.json"
        self.state: State = "done" if wanted.done else "waiting"
        self.left = self.steps_to_go = wanted.left
        self.written = self._time_written()
        self.progress: Progress | None = None
        self.slow = wanted.steps - wanted.left + SLOW_STEPS  # until then, most time goes into compilation
        self.first: tuple[float, int] | None = None  # when it was first seen past these, and its steps then
        self.speed = 0.0  # steps per second

    def _time_written(self) -> float:
        with suppress(OSError):
            return self.path.stat().st_mtime
        return 0.0

    def look(self) -> None:
        """Read how far the run is; it runs if its file has changed."""
        if (written := self._time_written()) in (0.0, self.written):
            return
        self.written = written
        with suppress(UsageError):
            self.progress = load_progress(self.path.parent)
            done, total = self.progress.steps
            self.state, self.left, now = "running", total - done, time.monotonic()
            if self.first is None:
                self.first = (now, done) if done >= self.slow else None
            elif now > self.first[0]:
                self.speed = (done - self.first[1]) / (now - self.first[0])

    @property
    def measured(self) -> bool:
        """Whether the run is past its slow steps, so that the sweep's speed can be measured from here on."""
        return self.first is not None or (self.state == "done" and self.steps_to_go > 0)

    @property
    def seconds_left(self) -> float | None:
        return self.left / self.speed if self.speed > 0 else None


class FollowingWatch(SweepWatch):
    """Follows all runs by their files."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def begin(self, todo: Sequence[Wanted], out: Path) -> None:
        super().begin(todo, out)
        self.out, self.runs = out, {w.name: _Run(w, out / w.name) for w in todo}
        self.looked = time.monotonic()
        self.active: set[str] = set()  # given to a process, or held by another sweep
        self.first: tuple[float, int] | None = None  # when a run was first past its slow steps; steps left of all then

    def add(self, todo: Sequence[Wanted]) -> None:
        new = {w.name: _Run(w, self.out / w.name) for w in todo if w.name not in self.runs}
        self.runs |= new
        if self.first:
            self.first = self.first[0], self.first[1] + sum(run.left for run in new.values())

    def submitted(self, names: Sequence[str]) -> None:
        self.active |= set(names)

    def stopped(self, name: str) -> None:
        if self.runs[name].state != "done":
            self.runs[name].state, self.runs[name].left = "stopped early", 0
        self.active.discard(name)

    def held(self, name: str) -> None:
        self.active.add(name)

    def done(self, name: str, record: Record) -> None:
        self.runs[name].state, self.runs[name].left = "done", 0
        self.active.discard(name)

    def failed(self, name: str, message: str) -> None:
        self.runs[name].state, self.runs[name].left = "failed", 0
        self.active.discard(name)

    def look(self) -> None:
        """Read the progress of the runs that may be running."""
        if passed(LOOK_SECONDS, self.looked):
            self.looked = time.monotonic()
            for name in self.active:
                self.runs[name].look()

    def counts(self) -> str:
        """Return how many runs are in which state, and the time left for all of them."""
        count = Counter(run.state for run in self.runs.values())
        text = ", ".join(f"{count[state]} {state}" for state in STATES if count[state] or state in STATES[:3])
        left, now = sum(run.left for run in self.runs.values()), time.monotonic()
        if self.first is None:
            if any(run.measured for run in self.runs.values()):
                self.first = now, left
        elif (taken := self.first[1] - left) > 0 and left and now > self.first[0]:
            text += f"; about {clock(left * (now - self.first[0]) / taken)} left"
        return text

    def show_warning(self, message: str) -> None:
        self.console.print(f"warning: {message}", markup=False, highlight=False, soft_wrap=True)


class LiveSweep(FollowingWatch):
    """One table that is drawn again and again."""

    def begin(self, todo: Sequence[Wanted], out: Path) -> None:
        super().begin(todo, out)
        self.failures: list[tuple[str, str]] = []
        self.closed = False
        self.live = Live(self._table(), console=self.console, auto_refresh=False, transient=True)
        self.live.start()

    def failed(self, name: str, message: str) -> None:
        super().failed(name, message)
        self.failures.append((name, message))

    def show(self) -> None:
        self.look()
        self.live.update(self._table(), refresh=True)

    def closing(self) -> None:
        self.closed = True
        self.live.update(self._table(), refresh=True)

    def end(self) -> None:
        self.live.stop()

    def _table(self) -> Group:
        """Return the table: what is running, as much of it as fits, then the last failures."""
        head = Text("stopping: runs are being saved; Ctrl-C again stops at once" if self.closed else self.counts())
        failures = [Text(f"failed  {printable(name)}: {printable(m)}") for name, m in self.failures[-FAILURES:]]
        running = [run for run in self.runs.values() if run.state == "running"]
        room = max(1, self.console.size.height - 4 - 2 * len(failures))
        table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="bold underline")
        table.add_column("running", ratio=1, no_wrap=True, overflow="ellipsis")
        for name in ("task", "done", "left"):
            table.add_column(name, justify="right", no_wrap=True)
        for run in running[:room]:
            table.add_row(printable(run.name), *_place(run))
        if len(running) > room:
            table.add_row(f"… and {len(running) - room} more")
        return Group(head, *([table] if running else []), *failures)


def _place(run: _Run) -> tuple[str, str, str]:
    """Return the task, the part that is done and the time left of a running run."""
    assert run.progress
    done, total = run.progress.steps
    task = f"{min(run.progress.task + 1, run.progress.tasks)}/{run.progress.tasks}"
    seconds = run.seconds_left
    return task, f"{100 * done / total:.0f} %", clock(seconds) if seconds is not None else "–"


class PlainSweep(FollowingWatch):
    """A line for each run that ends, and now and then one for all."""

    def begin(self, todo: Sequence[Wanted], out: Path) -> None:
        super().begin(todo, out)
        self.line = time.monotonic()
        self.quiet = {name for name, run in self.runs.items() if run.state == "done"}
        self._print(f"{len(self.runs)} runs in {out}: {self.counts()}")

    def done(self, name: str, record: Record) -> None:
        super().done(name, record)
        if name not in self.quiet:  # an earlier command did it
            self._print(f"done    {name}: {record.accuracy():.2f} %; {self.counts()}")

    def failed(self, name: str, message: str) -> None:
        super().failed(name, message)
        self._print(f"failed  {name}: {message}")

    def show(self) -> None:
        self.look()
        if passed(LINE_SECONDS, self.line):
            self.line = time.monotonic()
            self._print(self.counts())

    def closing(self) -> None:
        self._print("stopping: runs are being saved")

    def _print(self, line: str) -> None:
        self.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def sweep_watch_for(console: Console) -> SweepWatch:
    """Return a table for a terminal, and lines for anything else."""
    return LiveSweep(console) if console.is_terminal else PlainSweep(console)
