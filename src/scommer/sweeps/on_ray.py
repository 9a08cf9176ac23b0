"""A Ray cluster: jobs are tasks, which Ray repeats elsewhere when a machine dies."""

from contextlib import suppress
from importlib import import_module
from math import inf
from typing import Any

from scommer.errors import RunError, UsageError
from scommer.sweeps.worker import Job, Outcome, work

RETRIES = 10  # of a job, after its machine died


class Ray:
    """Runs jobs as tasks of a Ray cluster whose machines see the folders of the runs and of the data.

    `address` is that of a cluster, by default of the one that is running, else a cluster of this machine is started. A
    job has one core and, where the cluster has GPUs, the share `gpus` of one.
    """

    def __init__(self, address: str | None = None, gpus: float | None = None, device: str | None = None) -> None:
        try:
            ray: Any = import_module("ray")  # has few types
        except ImportError:
            raise UsageError("Ray is not installed: pip install 'scommer[ray]'") from None
        if gpus is not None and not gpus >= 0:
            raise UsageError(f"gpus = {gpus:g} is invalid: expected 0 or more")
        self.ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray, address)
        has_gpus = ray.cluster_resources().get("GPU", 0) > 0 and device != "cpu"
        self._gpus = (1.0 if gpus is None else gpus) if has_gpus else gpus or 0.0
        self._task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=RETRIES)(work)
        self._jobs: dict[Any, Job] = {}

    @property
    def slots(self) -> float:
        """Any number of tasks can wait in the cluster."""
        return inf

    @property
    def on_gpu(self) -> bool:
        return self._gpus > 0

    def submit(self, job: Job) -> None:
        """Add a task to the cluster's queue."""
        self._jobs[self._task.remote(job)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the jobs that have ended, waiting at most this long for one."""
        ready, _ = self.ray.wait(list(self._jobs), num_returns=1, timeout=seconds) if self._jobs else ([], [])
        return [self._ended(task, self._jobs.pop(task)) for task in ready]

    def _ended(self, task: Any, job: Job) -> tuple[Job, Outcome]:
        try:
            return job, self.ray.get(task)
        except Exception as e:  # whatever Ray raises for a task that it gave up
            message = " ".join(str(e).split())
            return job, Outcome(failed=dict.fromkeys(job.names, f"Ray gave it up: {message}"))

    def close(self) -> None:
        """Stop the tasks as Ctrl-C does, and wait until they are saved; end a cluster that was started for them."""
        for task in self._jobs:
            with suppress(Exception):  # it may just have ended
                self.ray.cancel(task)
        if self._jobs:
            self.ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=60)
        if self._started:
            self.ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Connect to a cluster, or start one on this machine if no address is given and none is running."""
    options = {"logging_level": "warning", "log_to_driver": False}
    try:
        if address is None:
            try:
                ray.init(address="auto", **options)
            except ConnectionError:
                ray.init(include_dashboard=False, **options)
        else:
            ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as e:
        message = " ".join(str(e).split())
        raise RunError(f"cannot use the Ray cluster at {address or 'this machine'} ({message})") from None
