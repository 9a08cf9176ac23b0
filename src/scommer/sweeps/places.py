"""Where a sweep runs: this machine, a Ray cluster or a Slurm cluster."""

from importlib import import_module
from inspect import signature
from typing import Any, Protocol

from scommer.errors import UsageError, lookup
from scommer.sweeps.worker import Job, Outcome

PLACES = {"local": "local", "ray": "on_ray", "slurm": "on_slurm"}  # and the modules of their classes
OPTIONS = {"local": ("processes",), "ray": ("address", "gpus"), "slurm": ("gpus", "partition", "hours")}


class Executor(Protocol):
    """Runs jobs somewhere. All it needs of the runs' folder is that both sides see it."""

    @property
    def slots(self) -> float:
        """How many jobs it can hold."""

    @property
    def on_gpu(self) -> bool:
        """Whether jobs run on a GPU, where several runs side by side are faster."""

    def submit(self, job: Job) -> None:
        """Run a job as soon as there is a place for it."""

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the jobs that have ended, waiting at most this long for one."""

    def close(self) -> None:
        """Stop what is running, and wait until it is saved."""


def executor(on: str, **options: Any) -> Executor:
    """Return the place with this name; an option of another place is refused."""
    kind = getattr(import_module(f"scommer.sweeps.{lookup('place to run', on, PLACES)}"), on.capitalize())
    for name in options:
        if name not in signature(kind).parameters:
            takers = [place for place, names in OPTIONS.items() if name in names]
            raise UsageError(f"--{name} is for --on {' and '.join(takers)}, not for {on}: leave it out")
    place: Executor = kind(**options)
    return place
