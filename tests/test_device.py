"""What is prepared for a device."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from scommer.device import choose_precision
from scommer.errors import UsageError

HELD = """
import resource, torch
from pathlib import Path
from scommer.device import kept_memory

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 10**6

torch.ones(10)
before = held()
with kept_memory(torch.device("cpu")):
    step = [torch.ones(5_000_000) for _ in range(10)]  # 200 MB
    del step
    inside = held()
print(before, inside, held())
"""


def held(**environment: str) -> list[int]:
    """MB that a process holds: at first, when a step of 200 MB has freed its memory, and in the end."""
    clean = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", HELD], capture_output=True, check=True, text=True, env=clean | environment
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library of GNU (glibc)")
def test_memory_that_a_step_frees_is_kept_for_the_next_until_the_end() -> None:
    before, inside, after = held()
    assert inside > before + 180
    assert after < before + 50


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library of GNU (glibc)")
def test_what_the_environment_says_of_memory_is_left_alone() -> None:
    before, inside, _ = held(MALLOC_TRIM_THRESHOLD_="1000000")
    assert inside < before + 50


def test_the_precision_is_that_of_the_device():
    cpu = torch.device("cpu")
    assert choose_precision(None, cpu) == choose_precision("fp32", cpu) == "fp32"
    for wanted in ("bf16", "tf32"):
        with pytest.raises(UsageError, match="GPUs"):
            choose_precision(wanted, cpu)
    with pytest.raises(UsageError, match="fp16"):
        choose_precision("fp16", cpu)
