"""What a process of a sweep does: run cohorts, each as `scommer run` would, and say how they ended."""

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scommer.errors import ScommerError
from scommer.plugins import load_plugin
from scommer.runs.experiment import Experiment
from scommer.runs.progress import Watch

PARENT_SECONDS = 1.0  # between two looks whether the process that started this one still lives


@dataclass(frozen=True)
class Job:
    """A cohort: experiments to run side by side."""

    experiments: tuple[Experiment, ...]
    names: tuple[str, ...]  # of their runs
    options: Mapping[str, Any]  # of RunOptions
    plugins: tuple[str, ...] = ()
    trial: tuple[str, int] | None = None  # of a search: its study in the folder `out`, and its number there


@dataclass(frozen=True)
class Outcome:
    """How the runs of a job ended. Those that are not named here are done."""

    failed: Mapping[str, str] = field(default_factory=dict)  # messages by name
    busy: tuple[str, ...] = ()  # held by other processes
    time_is_up: bool = False  # before all were done; everything is saved
    pruned: bool = False  # a poor trial of a search
    warnings: tuple[str, ...] = ()


class _Warnings(Watch):
    """Collects warnings."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def warn(self, message: str) -> None:
        self.messages.append(message)


def work(job: Job) -> Outcome:
    """Run a job."""
    import torch

    from scommer.device import choose_device
    from scommer.runs.checkpoint import InUse
    from scommer.runs.options import RunOptions
    from scommer.runs.runner import Failed, Interrupted, TimeUp, run_together
    from scommer.sweeps.pruning import Pruned, PruningWatch

    watch: _Warnings | PruningWatch = _Warnings()
    failures: dict[str, ScommerError] = {}
    time_is_up = pruned = False
    try:
        for path in job.plugins:
            load_plugin(Path(path))
        if job.trial:
            watch = PruningWatch(Path(job.options["out"]), *job.trial)
        if choose_device(job.options.get("device")).type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # as many processes as cores, whose results do not depend on their number
        run_together(job.experiments, RunOptions(**job.options), watch=watch)
    except Failed as e:
        failures = e.failures
    except TimeUp:
        time_is_up = True
    except Interrupted:  # everything is saved
        pass
    except Pruned:
        pruned = True
    except ScommerError as e:  # the same of all
        failures = dict.fromkeys(job.names, e)
    return Outcome(
        failed={name: str(e) for name, e in failures.items() if not isinstance(e, InUse)},
        busy=tuple(name for name, e in failures.items() if isinstance(e, InUse)),
        time_is_up=time_is_up,
        pruned=pruned,
        warnings=tuple(dict.fromkeys(watch.messages)),
    )


def serve() -> None:
    """Run the jobs that arrive on stdin, and write their outcomes to stdout, until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a plugin prints is not an answer
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(work(job), answers)
        answers.flush()


def _end_with(parent: int) -> None:
    """Stop this process, as a signal does, when its parent was killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
