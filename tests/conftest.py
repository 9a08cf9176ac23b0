"""The CIFAR files, if they are available, and Triton's interpreter."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # runs kernels on a CPU, slowly; read when Triton is imported

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
PACKED = Path(__file__).parents[2] / "shared" / "data" / "unpack.py"  # a packed copy next to the repository


@pytest.fixture(scope="session")
def cifar() -> Callable[[str], Path]:
    """Return a function from "cifar10" or "cifar100" to the folder with its official files."""
    return cifar_root


def cifar_root(name: str) -> Path:
    given = os.environ.get("SCOMMER_DATA")
    if given and (Path(given) / FOLDERS[name]).is_dir():
        return Path(given)
    if not PACKED.is_file():
        pytest.skip(f"CIFAR files not found: set SCOMMER_DATA to the folder that holds {FOLDERS[name]}")
    cache = Path(tempfile.gettempdir(), "scommer-test-data")
    folder = cache / FOLDERS[name]
    if not folder.is_dir():
        cache.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as own:
            subprocess.run([sys.executable, str(PACKED), name, own], check=True, stdout=subprocess.DEVNULL)
            try:
                Path(own, FOLDERS[name]).rename(folder)
            except OSError:
                assert folder.is_dir()  # another process was faster
    return cache
