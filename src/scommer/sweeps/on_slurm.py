"""A Slurm cluster: jobs are elements of job arrays, which go back into the queue when their time is up."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from scommer.errors import RunError, UsageError
from scommer.runs.checkpoint import is_locked
from scommer.sweeps.worker import Job, Outcome, work

HOURS = 4.0
MARGIN = 2.0  # minutes before the time limit at which a job saves its runs and goes back into the queue
STOPPING = 60.0  # seconds for jobs that were cancelled to save their runs; Slurm gives them 30 by default


class Slurm:
    """Runs jobs as arrays of a Slurm cluster whose machines see the folders of the runs and of the data.

    Each job has one core, `gpus` GPUs (default: 1, or none with the device "cpu"), and a time limit of `hours`, shortly
    before which, by `margin` minutes, it saves its runs and goes back into the queue. `more` are options of submitit,
    such as {"slurm_account": "lab", "mem_gb": 8}. Logs are in the folder `slurm` of the runs. `cluster` is "slurm", or
    "local" for processes of this machine in its place.
    """

    def __init__(
        self,
        partition: str | None = None,
        gpus: float | None = None,
        hours: float | None = None,
        device: str | None = None,
        cluster: str = "slurm",
        margin: float | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            self.submitit: Any = import_module("submitit")
        except ImportError:
            raise UsageError("submitit is not installed: pip install 'scommer[submitit]'") from None
        if gpus is not None and (gpus < 0 or gpus != int(gpus)):
            raise UsageError(f"gpus = {gpus:g} is invalid: Slurm gives whole GPUs to a job")
        hours = HOURS if hours is None else hours
        if not hours > 0:
            raise UsageError(f"hours = {hours:g} is invalid: expected more than 0")
        self._gpus = int(gpus) if gpus is not None else int(device != "cpu")
        self._minutes = max(1, round(60 * hours))
        self._limit = self._minutes - (min(MARGIN, self._minutes / 2) if margin is None else margin)
        self._cluster, self._partition, self._more = cluster, partition, dict(more or {})
        self._buffered: list[Job] = []
        self._jobs: dict[Any, Job] = {}

    @property
    def slots(self) -> float:
        """Any number of jobs can wait in the cluster."""
        return inf

    @property
    def on_gpu(self) -> bool:
        return self._gpus > 0

    def submit(self, job: Job) -> None:
        """Add a job to the next array."""
        self._buffered.append(replace(job, options={**job.options, "minutes": self._limit}))

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Submit what was added as one array, and return the jobs that have ended."""
        if self._buffered:
            self._submit_array()
        end = time.monotonic() + seconds
        while True:
            ended = [task for task in self._jobs if task.done()]
            if ended or time.monotonic() >= end:
                return [self._ended(task, self._jobs.pop(task)) for task in ended]
            time.sleep(min(0.2, seconds))

    def _submit_array(self) -> None:
        out = Path(self._buffered[0].options["out"])
        forever = {f"{self._cluster}_max_num_timeout": 10**6}
        executor = self.submitit.AutoExecutor(folder=out / "slurm", cluster=self._cluster, **forever)
        own = {"slurm_partition": self._partition} if self._partition else {}
        executor.update_parameters(
            name="scommer", timeout_min=self._minutes, cpus_per_task=1, gpus_per_node=self._gpus,
            **{"slurm_signal_delay_s": 30, **own, **self._more},
        )  # fmt: skip
        try:
            with executor.batch():
                tasks = [executor.submit(Requeued(), job) for job in self._buffered]
        except Exception as e:  # whatever sbatch says
            raise RunError(f"Slurm refuses the jobs: {' '.join(str(e).split())}") from None
        self._jobs |= dict(zip(tasks, self._buffered, strict=True))
        self._buffered = []

    def _ended(self, task: Any, job: Job) -> tuple[Job, Outcome]:
        try:
            return job, task.result()
        except Exception as e:  # submitit's own, for a job that failed, was cancelled or ran out of memory
            last = ([line for line in str(e).splitlines() if line.strip()] or ["no message"])[-1].strip()
            why = f"its Slurm job {task.job_id} ended without a result ({last}): see {task.paths.stderr}"
            return job, Outcome(failed=dict.fromkeys(job.names, why))

    def close(self) -> None:
        """Cancel the jobs, which save their runs then."""
        for task in self._jobs:
            with suppress(Exception):  # it may just have ended
                task.cancel()
        folders = [Path(job.options["out"]) / name for job in self._jobs.values() for name in job.names]
        end = time.monotonic() + STOPPING
        while time.monotonic() < end and any(map(is_locked, folders)):
            time.sleep(0.2)


class Requeued:
    """The function of a job: it goes back into the queue when its time is up, and continues from its checkpoints."""

    def __call__(self, job: Job) -> Outcome:
        outcome = work(job)
        if outcome.time_is_up:
            os.kill(os.getpid(), getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"))
        return outcome

    def checkpoint(self, job: Job) -> Any:
        """Return what to submit again; the runs are saved."""
        return import_module("submitit").helpers.DelayedSubmission(self, job)
