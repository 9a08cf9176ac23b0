"""Where it is computed: choosing a device, and naming it in a record."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch

from scommer.errors import UsageError, check_name

Precision = Literal["bf16", "tf32", "fp32"]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MALLOC = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for, or a GPU where there is one."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # queues of the GPU; 8 are usual, streams are more
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.ones(1, device=device).item()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # graphs and streams are made on the current one
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as e:
        raise UsageError(f"device '{wanted}' cannot be used here ({str(e).splitlines()[0]}): try cpu") from None
    return device


@contextmanager
def kept_memory(device: torch.device) -> Iterator[None]:
    """In here a process that computes on a CPU keeps what it frees, and gives it back at the end.

    A step asks for the same again, and would have to wait until the system has found and cleared it. With GNU's C
    library alone, and unless the environment tells it how to do.
    """
    libc = None
    if device.type == "cpu" and platform.libc_ver()[0] == "glibc" and not MALLOC & os.environ.keys():
        libc = ctypes.CDLL(None)
        if libc.mallopt(M_MMAP_THRESHOLD, 2**25):  # the most that it takes
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        if libc:
            libc.mallopt(M_TRIM_THRESHOLD, 2**26)
            libc.malloc_trim(0)


def device_facts(device: torch.device) -> dict[str, Any]:
    """Where it was computed."""
    if device.type == "cuda":
        return {"type": "cuda", "name": torch.cuda.get_device_name(device)}
    name = platform.processor() or platform.machine()
    return {"type": device.type, "name": name, "threads": torch.get_num_threads()}


def choose_precision(wanted: str | None, device: torch.device) -> Precision:
    """The precision of convolutions asked for, or the fastest that is good enough: bf16 on a GPU that has it."""
    names = get_args(Precision)
    if wanted is not None:
        check_name("precision", wanted, names)
    gpu = device.type == "cuda"
    if wanted not in (None, "fp32") and not gpu:  # bf16 kills the process on some virtual machines
        raise UsageError(f"{wanted} is for GPUs: give --precision fp32")
    usual = "bf16" if gpu and torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"
    precision: Precision = wanted or usual  # type: ignore[assignment]
    if gpu:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.deterministic = True  # so that a run can be repeated
    return precision
