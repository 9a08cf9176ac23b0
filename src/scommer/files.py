"""Files that are written whole or not at all, and safetensors files with their metadata."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from scommer.errors import RunError


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    with path.open("rb"):  # the OS says more plainly than safetensors why a file cannot be read
        pass
    with safe_open(path, framework="pt") as f:
        tensors = {name: f.get_tensor(name).clone() for name in f.keys()}  # noqa: SIM118 - copies: the file may change
        return tensors, f.metadata() or {}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that its name always holds either the old content or all of the new, even if several write it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with partial.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name, too, survives a power cut
        finally:
            os.close(folder)
    except OSError as e:
        with suppress(OSError):
            partial.unlink()
        raise RunError(
            f"cannot write {path}: {e.strerror or e}; what was saved before is intact: "
            "free some space or choose another folder, then try again"
        ) from e
