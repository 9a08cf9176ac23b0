"""Progress while a run trains: a bar in a terminal, plain lines elsewhere."""

import time
import warnings

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from scommer.engine.learner import Learner, Moment
from scommer.errors import RunWarning
from scommer.gpu.capture import EAGER_STEPS
from scommer.runs.experiment import Plan

SLOW_STEPS = EAGER_STEPS + 2  # the first ones: one without replay, the eager ones, and the capture of a graph
COMPILES = "compiling kernels, which takes a minute or two the first time"  # on a GPU, before the first step


class Watch:
    """Follows a run, or the longest of several side by side. This one only shows warnings."""

    def begin(self, plan: Plan, learner: Learner, together: int) -> None: ...

    def moment(self, learner: Learner, moment: Moment) -> None: ...

    def after_task(self, plan: Plan, learner: Learner) -> None:
        """Called after each task of each run, not only of the longest."""

    def warn(self, message: str) -> None:
        warnings.warn(message, RunWarning, stacklevel=2)

    def end(self) -> None: ...


class Pace:
    """Measures the speed of a learner, and reads its loss now and then: each read waits for the device.

    The first steps do not count: most compilation happens in them.
    """

    def __init__(self, every: float) -> None:
        self.every = every

    def begin(self, learner: Learner, together: int) -> None:
        self.together = together
        self.last = time.monotonic()
        self.start: float | None = None
        self.first, self.total = learner.steps

    def due(self, learner: Learner) -> bool:
        """Return whether it is time to show something."""
        now = time.monotonic()
        if self.start is None:
            if (done := learner.steps[0]) >= self.first + SLOW_STEPS:
                self.start, self.first = now, done
            return False
        if not passed(self.every, self.last):
            return False
        self.last = now
        return True

    def describe(self, learner: Learner) -> str:
        """Return task, epoch, loss, images per second and time left."""
        done, _ = learner.steps
        assert self.start is not None  # nothing is due before
        seconds = time.monotonic() - self.start
        speed = (done - self.first) / seconds if seconds > 0 else 0  # steps per second
        images = speed * learner.batch_size * self.together
        task, epoch = learner.place
        place = f"task {task}/{len(learner.phases)}  epoch {epoch}/{learner.epochs}"
        all_images = f"{images:,.0f} img/s  " if self.together == 1 else ""  # the line of several has less room
        pace = f"{all_images}{clock((self.total - done) / speed)} left" if speed else "measuring the speed"
        return f"{self.whose(learner)}{place}  loss {learner.mean_loss():.3f}  {pace}"

    def whose(self, learner: Learner) -> str:
        """Return which of several runs is shown; nothing for one alone."""
        if self.together == 1:
            return ""
        return f"{learner.method.label or type(learner.method).__name__}, seed {learner.seed}: "


def passed(seconds: float, since: float) -> bool:
    """Return whether this much time has passed since then, or the clock was set back."""
    return not 0 <= time.monotonic() - since < seconds


def clock(seconds: float) -> str:
    """Return seconds as 1:02:03 or 2:03, and more than two days as 5 days."""
    if seconds > 48 * 3600:
        return f"{seconds / (24 * 3600):,.0f} days"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


class LiveWatch(Watch):
    """A progress bar."""

    def __init__(self, console: Console) -> None:
        self.console, self.pace = console, Pace(0.2)

    def begin(self, plan: Plan, learner: Learner, together: int) -> None:
        self.pace.begin(learner, together)
        title = plan.experiment.method + (f" ×{together}" if together > 1 else "")
        self.bar = Progress(
            TextColumn(title), BarColumn(None), TextColumn("{task.description}"),
            console=self.console, transient=True, expand=True,
        )  # fmt: skip
        starting = f"starting: {COMPILES}" if learner.device.type == "cuda" else "starting"
        self.row = self.bar.add_task(starting, total=self.pace.total, completed=self.pace.first)
        self.bar.start()

    def moment(self, learner: Learner, moment: Moment) -> None:
        if self.pace.due(learner):
            self.bar.update(self.row, completed=learner.steps[0], description=self.pace.describe(learner))

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {message}", markup=False)

    def end(self) -> None:
        self.bar.stop()


class PlainWatch(Watch):
    """A line every few seconds and at the end of each task."""

    def __init__(self, console: Console) -> None:
        self.console, self.pace = console, Pace(10.0)

    def begin(self, plan: Plan, learner: Learner, together: int) -> None:
        self.pace.begin(learner, together)
        what = f"resuming {plan.name} at step {self.pace.first:,}" if self.pace.first else f"running {plan.name}"
        others = f", with {together - 1} more side by side" if together > 1 else ""
        compiles = f" ({COMPILES})" if learner.device.type == "cuda" else ""
        self._print(f"{what}: {self.pace.total:,} steps on {learner.device}{others}{compiles}")

    def moment(self, learner: Learner, moment: Moment) -> None:
        if moment == "task":
            rows = {view: scores[-1].class_il for view, scores in learner.scores.items() if "/" not in view}
            seen = ", ".join(f"{view} {row[: learner.tasks_learned].mean():.2f} %" for view, row in rows.items())
            after = f"{self.pace.whose(learner)}after task {learner.task}"
            if seen:  # there are test images
                self._print(f"{after}: mean Class-IL accuracy on the tasks so far: {seen}")
        elif self.pace.due(learner):
            self._print(self.pace.describe(learner))

    def warn(self, message: str) -> None:
        self._print(f"warning: {message}")

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def watch_for(console: Console) -> Watch:
    """Return a bar for a terminal, and lines for anything else."""
    return LiveWatch(console) if console.is_terminal else PlainWatch(console)
