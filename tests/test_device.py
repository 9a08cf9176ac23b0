"""What is prepared for a device."""

import platform
import subprocess
import sys

import pytest

HEAP = """
import sys, torch
from pathlib import Path
from scommer.device import choose_device
if sys.argv[1] == "ready":
    choose_device("cpu")
step = [torch.ones(5_000_000) for _ in range(10)]  # 200 MB
del step
(heap,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
start, end = (int(at, 16) for at in heap.split()[0].split("-"))
print((end - start) // 10**6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the C library of GNU")
def test_memory_that_a_step_frees_is_kept_for_the_next() -> None:
    ready, usual = (
        int(subprocess.run([sys.executable, "-c", HEAP, how], capture_output=True, check=True, text=True).stdout)
        for how in ("ready", "usual")
    )
    assert usual < 200 <= ready
