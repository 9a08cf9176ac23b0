"""Checkpoints: written whole or not at all, verified when read, the previous one kept."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from torch import Tensor

from scommer.errors import RunError
from scommer.files import read_safetensors, write_atomically

KEPT = 2
NAME = re.compile(r"checkpoint-\d+-[0-9a-f]{16}\.safetensors")


def save(folder: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> Path:
    """Writes a checkpoint. Its name carries its digest, so that any damage shows."""
    content = safetensors.torch.save(
        {name: t.contiguous() for name, t in tensors.items()}, {"values": json.dumps(values)}
    )
    number = 1 + max(map(_number, _newest_first(folder)), default=0)
    path = folder / f"checkpoint-{number:06d}-{sha256(content).hexdigest()[:16]}.safetensors"
    write_atomically(path, content)
    for old in _newest_first(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def load(folder: Path, warn: Callable[[str], None]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest good checkpoint, or None. A damaged one is named and set aside."""
    for path in _newest_first(folder):
        try:
            content = path.read_bytes()
        except OSError as e:
            raise RunError(f"cannot read {path}: {e.strerror or e}; mend that, or begin anew with --fresh") from e
        if sha256(content).hexdigest()[:16] != path.stem.rsplit("-", 1)[1]:
            older = len(_newest_first(folder)) > 1
            warn(
                f"{path.name} is damaged: {'going on from the one before' if older else 'none is left, beginning anew'}"
            )
            with suppress(OSError):  # where nothing may be written
                path.replace(path.with_suffix(".damaged"))
            continue
        tensors, metadata = read_safetensors(path)
        return renamed(tensors), json.loads(metadata["values"])
    return None


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state under today's names: until 0.1.0 it began with `mind/`."""
    return {re.sub("^mind/", "memories/", name): t for name, t in tensors.items()}


def newer_than(record: Path) -> bool:
    """Whether a run was taken up again since its record was written."""
    return any(path.stat().st_mtime_ns > record.stat().st_mtime_ns for path in _newest_first(record.parent))


def clear(folder: Path) -> None:
    """Removes the checkpoints of a finished run, and what was being written when it was killed."""
    for path in [*folder.glob("checkpoint-*"), *folder.glob(".*.partial"), folder / "progress.json"]:
        path.unlink(missing_ok=True)


def _newest_first(folder: Path) -> list[Path]:
    """Those that `save` has written, by their numbers; others may have files like these."""
    ours = [path for path in folder.glob("checkpoint-*.safetensors") if NAME.fullmatch(path.name)]
    return sorted(ours, key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.name.split("-")[1])


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process; a second process is refused. The lock ends with its process."""
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RunError(f"{folder} is in use by another process: wait for it, or give another --out") from None
    except OSError as e:
        raise RunError(f"cannot write into {folder}: {e.strerror or e}; give another folder with --out") from e
    try:
        yield
    finally:
        with suppress(OSError):  # another process may have removed it
            if [path.name for path in folder.iterdir()] == [".lock"]:  # nothing was written
                (folder / ".lock").unlink()
                folder.rmdir()
        lock.release()
