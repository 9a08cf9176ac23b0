"""Choose a device and a precision without side effects, and compute there, restoring all global state afterwards."""

import ctypes
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

import torch

from scommer.errors import UsageError, check_name

Precision = Literal["bf16", "tf32", "fp32"]
T = TypeVar("T")


def choose_device(wanted: str | None) -> torch.device:
    """Return the requested device; by default a GPU if there is one."""
    with _gpu_queues():  # the first query starts the driver
        if wanted is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(wanted)
            backend = torch.get_device_module(device)
        except (RuntimeError, TypeError):
            raise UsageError(f"device '{wanted}' cannot be used here (unknown): use cpu, cuda or cuda:1") from None
        if device.type == "cpu":
            return device
        count = backend.device_count() if backend.is_available() else 0
    if (device.index or 0) >= count:
        if not count:
            raise UsageError(f"device '{wanted}' cannot be used here (no {device.type} device was found): use cpu")
        last = f"{device.type}:{count - 1}"
        raise UsageError(f"device '{wanted}' cannot be used here (the last one is {last}): use a lower number")
    return device


def choose_precision(wanted: str | None, device: torch.device) -> Precision:
    """Return the requested precision of convolutions; by default bf16 on a GPU that supports it, else fp32."""
    names = get_args(Precision)
    if wanted is not None:
        check_name("precision", wanted, names)
    gpu = device.type == "cuda"
    if wanted not in (None, "fp32") and not gpu:  # bf16 crashes the process on some virtual machines
        raise UsageError(f"{wanted} is for GPUs: use --precision fp32")
    with _gpu_queues():  # this query may start the driver
        default = "bf16" if gpu and torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"
    precision: Precision = wanted or default  # type: ignore[assignment]
    return precision


@contextmanager
def computing_on(
    device: torch.device, precision: Precision, keep_memory: bool = True, threads: int | None = None
) -> Iterator[None]:
    """Set the process-wide state for computing on a device, and restore it at the end.

    On a GPU: the current device, its number of queues, TF32 if the precision allows it, deterministic kernels. On a
    CPU: freed memory is kept for reuse, unless `keep_memory` is off, and PyTorch uses this many threads, unless the
    environment sets OMP_NUM_THREADS.
    """
    with ExitStack() as settings:
        if device.type == "cuda":
            settings.enter_context(_gpu_queues())
            settings.enter_context(current(device))
            tf32 = precision != "fp32"
            settings.enter_context(_KERNELS.set(_Kernels(tf32, tf32, deterministic=True)))
        else:
            if keep_memory and _glibc():
                settings.enter_context(_KEEP_FREED_MEMORY.set(True))
            if threads and "OMP_NUM_THREADS" not in os.environ:
                settings.enter_context(_THREADS.set(threads))
        yield


@contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Make a GPU the current device, which graphs, streams and Triton kernels use."""
    if device.type == "cuda" and device.index is not None:
        with torch.cuda.device(device):
            yield
    else:
        yield


@contextmanager
def _gpu_queues() -> Iterator[None]:
    """Give a GPU that is initialised in this block 32 queues; the default of 8 is fewer than our streams."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    given = name in os.environ
    os.environ.setdefault(name, "32")
    try:
        yield
    finally:
        if not given:
            os.environ.pop(name, None)


class _Setting(Generic[T]):
    """A process-wide setting.

    Blocks that set it may nest, or overlap in several threads. When one ends, the value of the latest block that is
    still open applies; when the last one ends, the original value does.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], None]) -> None:
        self._read, self._write, self._lock = read, write, threading.Lock()
        self._values: dict[object, T] = {}  # the original value, then that of each open block

    @contextmanager
    def set(self, value: T) -> Iterator[None]:
        block = object()
        with self._lock:
            self._values = self._values or {None: self._read()}
            self._values[block] = value
            self._write(value)
        try:
            yield
        finally:
            with self._lock:
                del self._values[block]
                self._write(list(self._values.values())[-1])
                if len(self._values) == 1:
                    self._values = {}


class _Kernels(NamedTuple):
    """Which kernels PyTorch's libraries may choose on a GPU."""

    convolutions_tf32: bool
    matrices_tf32: bool
    deterministic: bool  # so that a run can be repeated


def _read_kernels() -> _Kernels:
    cudnn = torch.backends.cudnn
    return _Kernels(cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.deterministic)


def _write_kernels(kernels: _Kernels) -> None:
    torch.backends.cudnn.allow_tf32 = kernels.convolutions_tf32
    torch.backends.cuda.matmul.allow_tf32 = kernels.matrices_tf32
    torch.backends.cudnn.deterministic = kernels.deterministic


_KERNELS = _Setting(_read_kernels, _write_kernels)

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h
MALLOC = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


def _glibc() -> bool:
    """Return whether malloc is glibc's, and the environment leaves its thresholds to us."""
    return platform.libc_ver()[0] == "glibc" and not MALLOC & os.environ.keys()


def _keep_freed_memory(keep: bool) -> None:
    """Stop glibc from returning freed memory to the OS.

    A step allocates the same memory again, and would wait for the OS to find and clear it. glibc cannot report its
    thresholds, so turning this off sets those that it chooses itself once a block of 32 MiB was freed.
    """
    libc = ctypes.CDLL(None)
    if keep:
        if libc.mallopt(M_MMAP_THRESHOLD, 2**25):  # the largest that glibc accepts
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    else:
        libc.mallopt(M_TRIM_THRESHOLD, 2**26)
        libc.malloc_trim(0)


_KEEP_FREED_MEMORY = _Setting(lambda: False, _keep_freed_memory)
_THREADS = _Setting(torch.get_num_threads, torch.set_num_threads)


def device_facts(device: torch.device) -> dict[str, Any]:
    """Return the type and name of a device, for a record."""
    if device.type == "cuda":
        return {"type": "cuda", "name": torch.cuda.get_device_name(device)}
    name = platform.processor() or platform.machine()
    return {"type": device.type, "name": name, "threads": torch.get_num_threads()}
