"""Checkpoints: written atomically, verified when read, the last two kept."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from torch import Tensor

from scommer.errors import RunError
from scommer.files import read_safetensors, write_atomically

KEPT = 2
IN_USE = "{} is in use by another process: wait for it, or give another --out"
NAME = re.compile(r"checkpoint-\d+-[0-9a-f]{16}\.safetensors")


class InUse(RunError):
    """The run's folder is held by another process."""


def save(folder: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> Path:
    """Write a checkpoint. Its name contains its digest, which reveals any damage."""
    content = safetensors.torch.save(
        {name: t.contiguous() for name, t in tensors.items()}, {"values": json.dumps(values)}
    )
    number = 1 + max(map(_number, _newest_first(folder)), default=0)
    path = folder / f"checkpoint-{number:06d}-{sha256(content).hexdigest()[:16]}.safetensors"
    write_atomically(path, content)
    for old in _newest_first(folder)[KEPT:]:
        with suppress(OSError):  # what is saved counts; the next checkpoint tries again
            old.unlink()
    return path


def load(folder: Path, warn: Callable[[str], None]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the newest intact checkpoint, or None. A damaged one is reported and renamed."""
    for path in _newest_first(folder):
        try:
            with path.open("rb") as f:
                digest = file_digest(f, "sha256").hexdigest()[:16]
        except OSError as e:
            raise RunError(
                f"cannot read {path}: {e.strerror or e}; make it readable, or start over with --fresh"
            ) from e
        if digest != path.stem.rsplit("-", 1)[1]:
            older = len(_newest_first(folder)) > 1
            warn(f"{path.name} is damaged: {'resuming from the previous one' if older else 'starting over'}")
            with suppress(OSError):  # the folder may be read-only
                path.replace(path.with_suffix(".damaged"))
            continue
        try:
            tensors, metadata = read_safetensors(path)
            values: dict[str, Any] = dict(json.loads(metadata["values"]))
        except (SafetensorError, LookupError, ValueError, TypeError) as e:
            raise RunError(f"{path} is not a checkpoint ({type(e).__name__}): move it away") from e
        return with_current_names(tensors), values
    return None


def with_current_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state with the current names; in files of version 0.1.0 they start with `mind/`."""
    return {re.sub("^mind/", "memories/", name): t for name, t in tensors.items()}


def trains_again(folder: Path) -> bool:
    """Return whether a checkpoint belongs to a later training than the one that made the record."""
    for path in _newest_first(folder):
        with suppress(OSError, SafetensorError, KeyError, ValueError, TypeError), safe_open(path, "pt") as f:
            if dict(json.loads(f.metadata()["values"])).get("again", True):  # early ones do not say: nothing is lost
                return True
    return False


def clear(folder: Path) -> None:
    """Remove all checkpoints and half-written files of killed processes, but no other files."""
    damaged = [path for path in folder.glob("checkpoint-*.damaged") if NAME.fullmatch(f"{path.stem}.safetensors")]
    for path in [*_newest_first(folder), *damaged, *folder.glob(".*.partial"), folder / "progress.json"]:
        if path.is_file():
            path.unlink(missing_ok=True)


def _newest_first(folder: Path) -> list[Path]:
    """Return the files that `save` has written; other programs may use similar names."""
    found = [path for path in folder.glob("checkpoint-*.safetensors") if NAME.fullmatch(path.name)]
    return sorted(found, key=_number, reverse=True)


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
        raise InUse(IN_USE.format(folder)) from None
    except OSError as e:
        if isinstance(e, FileExistsError | FileNotFoundError) and not folder.is_file() and folder.parent.is_dir():
            raise InUse(IN_USE.format(folder)) from None  # by one that has just removed its empty folder
        raise RunError(f"cannot write into {folder}: {e.strerror or e}; give another folder with --out") from e
    try:
        yield
    finally:
        with suppress(OSError):  # another process may have removed it
            if [path.name for path in folder.iterdir()] == [".lock"]:  # nothing was written
                (folder / ".lock").unlink()
                folder.rmdir()
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether a process holds a run's folder."""
    if not (folder / ".lock").exists():
        return False
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # its folder was removed
        return False
    lock.release()
    return False
