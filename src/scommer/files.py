"""Files written completely or not at all, and safetensors files with their metadata."""

import errno
import os
import platform
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from scommer.errors import RunError, ScommerError, UsageError

if TYPE_CHECKING:  # commands import this file, and need no torch for --help
    from torch import Tensor


def expand_user(path: Path | str) -> Path:
    """Return a path with ~ replaced by the user's home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        raise UsageError(f"{path} names a user that does not exist: write the whole path") from e


def read_safetensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return the tensors and the metadata of a safetensors file."""
    with path.open("rb"):  # the OS says more plainly than safetensors why a file cannot be read
        pass
    with safe_open(path, framework="pt") as f:
        tensors = {name: f.get_tensor(name).clone() for name in f.keys()}  # noqa: SIM118 - copies: the file may change
        return tensors, f.metadata() or {}


def disk_error(message: str, error: OSError) -> ScommerError:
    """Return the error for a path that cannot be written: a failure if the disk is full, else an invalid path."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    return RunError(message) if full else UsageError(message)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user asked for, atomically, and create its folder if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        target = Path(os.path.realpath(path))  # through a link, not over it
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # to a device or a pipe, which nothing may replace
            return
    except OSError as e:
        raise disk_error(f"cannot write '{path}': {e.strerror or e}", e) from None
    write_atomically(target, content)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it always has either the old content or all of the new, even with several writers."""
    name = sha256(path.name.encode()).hexdigest()[:8]  # short: path.name may have the maximum length
    partial = path.with_name(f".{name}.{_host()}-{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with partial.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as e:
        with suppress(OSError):
            partial.unlink()
        raise RunError(
            f"cannot write {path}: {e.strerror or e}; what was saved before is intact: "
            "free some space or choose another folder, then try again"
        ) from e
    with suppress(OSError, ValueError):  # the latter for a name that is not ours
        for stale in path.parent.glob(f".{'[0-9a-f]' * 8}.{_host()}-*.partial"):  # of this file and of others
            if not _alive(int(stale.name.split("-")[1])):
                stale.unlink(missing_ok=True)  # of a process that was killed while it wrote


def _sync_folder(path: Path) -> None:
    """Make a folder's entries survive a power cut too, where its file system allows it."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def _host() -> str:
    """Return a short name of this machine: process numbers mean nothing on another one that shares the folder."""
    return sha256(platform.node().encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        pass
    return True
