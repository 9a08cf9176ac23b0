"""The processes of this machine: one for each GPU or, on a CPU, one for each core."""

import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import torch

from scommer.device import choose_device
from scommer.errors import UsageError
from scommer.sweeps.worker import Job, Outcome

LAST_SECONDS = 10  # that a process which dies has to say why


class Local:
    """Runs jobs in processes of this machine, each with its own device.

    A process that dies fails its job only. When this process is killed, they save their runs and end.
    """

    def __init__(self, processes: int | None = None, device: str | None = None) -> None:
        if processes is not None and processes < 1:
            raise UsageError(f"processes = {processes} is invalid: expected 1 or more")
        self.devices = _devices(processes, device)
        self.slots = len(self.devices)
        self.on_gpu = self.devices[0] != "cpu"
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Job, Outcome]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._closing, self._closed = threading.Lock(), False
        self._threads = [threading.Thread(target=self._serve, args=(device,), daemon=True) for device in self.devices]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Run a job as soon as a process is free."""
        self._jobs.put(job)

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the jobs that are done, if any are within this time."""
        found: list[tuple[Job, Outcome]] = []
        with suppress(queue.Empty):
            found.append(self._done.get(timeout=seconds))
            while True:
                found.append(self._done.get_nowait())
        return found

    def close(self) -> None:
        """Stop what is running, and wait until it is saved; a KeyboardInterrupt meanwhile ends it at once."""
        with self._closing:
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        try:
            for process in self._processes:
                process.send_signal(signal.SIGTERM)
            for thread in self._threads:
                thread.join()
        except BaseException:
            for process in self._processes:
                process.kill()
            raise

    def _serve(self, device: str) -> None:
        """Give jobs to one process after the other, until one of them dies with its job."""
        while job := self._jobs.get():
            with self._closing:
                if self._closed:
                    return
                errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
                process = _start(device, errors.fileno())
                self._processes.append(process)
            with errors, process:  # closes its pipes, so that it ends, and waits for it
                while job and (outcome := _answer(process, replace(job, options={**job.options, "device": device}))):
                    self._done.put((job, outcome))
                    job = self._jobs.get()
                if job is None:
                    return
                why = _last_words(process, errors.fileno())
                self._done.put((job, Outcome(failed=dict.fromkeys(job.names, why))))


def _answer(process: "subprocess.Popen[bytes]", job: Job) -> Outcome | None:
    """Return how a job ended in a process, or None if that has died."""
    assert process.stdin
    assert process.stdout
    try:
        pickle.dump(job, process.stdin)
        process.stdin.flush()
        outcome: Outcome = pickle.load(process.stdout)
    except Exception:  # whatever is left of an answer
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_SECONDS)  # it may still be saying why
        process.kill()
        return None
    return outcome


def _devices(processes: int | None, device: str | None) -> Sequence[str]:
    """Return the device of each process."""
    chosen = choose_device(device)
    if chosen.type == "cpu":
        allowed = getattr(os, "sched_getaffinity", None)  # not on every system
        return ["cpu"] * (processes or (len(allowed(0)) if allowed else os.cpu_count() or 1))
    if device and ":" in device:
        return [device] * (processes or 1)
    gpus = [f"{chosen.type}:{i}" for i in range(torch.get_device_module(chosen).device_count())]
    return [gpus[i % len(gpus)] for i in range(processes or len(gpus))]


def _start(device: str, errors: int) -> "subprocess.Popen[bytes]":
    own = {} if device != "cpu" else {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return subprocess.Popen(
        [sys.executable, "-c", "from scommer.sweeps.worker import serve; serve()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **own},
        start_new_session=True,  # Ctrl-C reaches this process only, which then stops them
    )  # fmt: skip


def _last_words(process: "subprocess.Popen[bytes]", errors: int) -> str:
    """Return why a process has ended."""
    code = process.wait()
    if code < 0:
        name = signal.Signals(-code).name
        memory = ", perhaps because memory is exhausted: use fewer --processes" if code == -signal.SIGKILL else ""
        return f"its process was ended by {name}{memory}; run the same command to resume"
    size = os.fstat(errors).st_size
    lines = os.pread(errors, 2000, max(0, size - 2000)).decode(errors="replace").strip().splitlines()
    return f"its process ended with exit code {code}: {lines[-1] if lines else 'no message'}"
