"""Choosing a device changes nothing; computing there restores what it found."""

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from scommer import Experiment, LifelongClassifier, run
from scommer.bench.timing import bench
from scommer.device import Precision, choose_device, choose_precision, computing_on
from scommer.errors import UsageError
from scommer.runs.options import RunOptions

CPU, GPU = torch.device("cpu"), torch.device("cuda")
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library of GNU (glibc)")


def flags() -> tuple[bool, bool, bool]:
    cudnn = torch.backends.cudnn
    return cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.deterministic


def set_flags(convolutions: bool, matrices: bool, deterministic: bool) -> None:
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, matrices
    torch.backends.cudnn.deterministic = deterministic


@pytest.fixture(params=[(True, False, False), (False, True, False), (True, True, True)], ids=str)
def found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[bool, bool, bool]]:
    """Set flags as a user might, and no number of queues."""
    monkeypatch.delenv(QUEUES, raising=False)
    before = flags()
    set_flags(*request.param)
    yield request.param
    set_flags(*before)


def state() -> tuple[object, ...]:
    """Return everything that computing on a device may change; before PyTorch knows the GPUs, the first is current."""
    return flags(), dict(os.environ), torch.cuda.current_device() if torch.cuda.is_initialized() else 0


# --- choosing


def test_a_device_is_chosen_by_name() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device(None) == torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("wanted", ["toaster", "meta", "cuda:-1", "cuda:99", ""])
def test_a_missing_device_is_refused(wanted: str) -> None:
    with pytest.raises(UsageError, match=rf"device '{wanted}' cannot be used here \(.+\): use "):
        choose_device(wanted)


@pytest.mark.parametrize("there", [0, 1, 2])
def test_the_number_of_a_gpu_is_checked_against_how_many_there_are(there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    for number in range(3):
        if number < there:
            assert choose_device(f"cuda:{number}") == torch.device("cuda", number)
        else:
            reason = f"the last one is cuda:{there - 1}" if there else "no cuda device was found"
            with pytest.raises(UsageError, match=f"device 'cuda:{number}' cannot be used here .{reason}"):
                choose_device(f"cuda:{number}")


def test_a_cpu_computes_in_fp32() -> None:
    assert choose_precision(None, CPU) == choose_precision("fp32", CPU) == "fp32"
    for wanted in ("bf16", "tf32"):
        with pytest.raises(UsageError, match="GPUs"):
            choose_precision(wanted, CPU)
    with pytest.raises(UsageError, match="fp16"):
        choose_precision("fp16", CPU)


@pytest.mark.parametrize(("capability", "usual"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_a_gpu_uses_bf16_if_it_supports_it(
    capability: tuple[int, int], usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    before = state()
    assert [choose_precision(wanted, GPU) for wanted in (None, "tf32", "fp32")] == [usual, "tf32", "fp32"]
    assert state() == before


def test_choosing_changes_nothing(found: tuple[bool, bool, bool]) -> None:
    before = state()
    for wanted in (None, "cpu"):
        choose_precision(None, choose_device(wanted))
    for wanted in ("toaster", "cuda:99"):
        with pytest.raises(UsageError):
            choose_device(wanted)
    RunOptions()
    LifelongClassifier(10)
    assert state() == before


def test_the_driver_is_started_with_32_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(seen.append(os.environ.get(QUEUES))))
    monkeypatch.delenv(QUEUES, raising=False)
    choose_device(None)
    monkeypatch.setenv(QUEUES, "4")
    choose_device(None)
    assert seen == ["32", "4"]  # a user's own number is kept
    assert os.environ[QUEUES] == "4"


# --- computing


@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp32"])
def test_gpu_settings_are_restored_even_after_an_error(precision: Precision, found: tuple[bool, bool, bool]) -> None:
    tf32 = precision != "fp32"
    before = state()
    seen = []

    def failing() -> None:
        with computing_on(GPU, precision):
            seen.append((flags(), os.environ[QUEUES]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert seen == [((tf32, tf32, True), "32")]
    assert state() == before


def test_on_a_cpu_no_flag_is_changed(found: tuple[bool, bool, bool]) -> None:
    with computing_on(CPU, "fp32"):
        assert (flags(), QUEUES in os.environ) == (found, False)


def test_threads_of_a_cpu_are_set_and_restored_unless_the_environment_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with computing_on(CPU, "fp32", threads=3):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before
    monkeypatch.setenv("OMP_NUM_THREADS", str(before))
    with computing_on(CPU, "fp32", threads=3):
        assert torch.get_num_threads() == before


def test_the_users_number_of_queues_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUEUES, "4")
    with computing_on(GPU, "fp32"):
        assert os.environ[QUEUES] == "4"
    assert os.environ[QUEUES] == "4"


def test_blocks_may_nest(found: tuple[bool, bool, bool]) -> None:
    with computing_on(GPU, "tf32"):
        with computing_on(GPU, "fp32"):
            assert flags() == (False, False, True)
        assert flags() == (True, True, True)
    assert flags() == found


def test_threads_that_overlap_restore_what_the_first_found(found: tuple[bool, bool, bool]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with computing_on(GPU, "fp32"):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with computing_on(GPU, "tf32"):
        thread.start()
        assert inside.wait(10)
    assert flags() == (False, False, True)  # the other one is still computing
    leave.set()
    thread.join()
    assert flags() == found


def test_runs_classifiers_and_benchmarks_leave_the_process_as_it_was(found: tuple[bool, bool, bool]) -> None:
    before = state()
    quick = {"epochs": 1, "width": 4}
    run(Experiment("s-digits", "er", 20, settings=quick), device="cpu")
    images, labels = np.random.default_rng(0).random((40, 8, 8)), np.arange(40) % 2
    LifelongClassifier(2, "er", settings=quick, device="cpu").fit(images, labels).predict(images)
    bench("er", network="mlp", size=8, steps=1, cohorts=(1,))
    assert state() == before


# --- freed memory

HELD = """
import resource, torch
from pathlib import Path
from scommer.device import computing_on

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 10**6

torch.ones(10)
before = held()
with computing_on(torch.device("cpu"), "fp32", {keep}):
    step = [torch.ones(5_000_000) for _ in range(10)]  # 200 MB
    del step
    inside = held()
print(before, inside, held())
"""


def held(keep: bool = True, **environment: str) -> list[int]:
    """Return the MB that a process holds: at first, after a step has freed 200 MB, and at the end."""
    clean = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", HELD.format(keep=keep)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=clean | environment)
    return [int(word) for word in done.stdout.split()]


@glibc
def test_memory_freed_by_a_step_is_kept_until_the_end() -> None:
    before, inside, after = held()
    assert inside > before + 180
    assert after < before + 50


@glibc
@pytest.mark.parametrize(("keep", "environment"), [(True, {"MALLOC_TRIM_THRESHOLD_": "1000000"}), (False, {})])
def test_memory_is_returned_if_the_environment_or_the_caller_says_so(keep: bool, environment: dict[str, str]) -> None:
    before, inside, _ = held(keep, **environment)
    assert inside < before + 50


# --- on a real GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_choosing_starts_nothing_on_a_gpu() -> None:
    """In a new process, the driver is asked whether the GPU has a context."""
    code = """
import ctypes
from scommer.device import choose_device, choose_precision
choose_precision(None, choose_device("cuda:0"))
driver, active = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
driver.cuInit(0)
driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(ctypes.c_uint()), ctypes.byref(active))
print(active.value)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "0"
