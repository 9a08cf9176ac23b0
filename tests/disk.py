"""A disk that a test watches and fills: every call of Python that changes a file, in its order."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Event = tuple[str, str]  # what is done, and the name of the file
CREATING = ("open", "write", "fsync", "mkdir")  # what a full disk refuses; files can still be removed


class Disk:
    """Calls `before` with each event in a folder and below it, before it happens."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, before: Callable[[Event], None]) -> None:
        self.root, self.before = os.path.realpath(root), before
        self.io_open, self.os_open = io.open, os.open
        patch.setattr(io, "open", self._open)
        patch.setattr("builtins.open", self._open)
        patch.setattr(os, "open", self._open_descriptor)
        patch.setattr(os, "fsync", self._fsync)
        for name in ("replace", "rename", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _note(self, what: str, path: Any) -> None:
        where = os.path.realpath(os.fsdecode(path))
        if where.startswith(self.root):
            self.before((what, Path(where).name))

    def _watched(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *more: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None and not (what == "mkdir" and Path(os.fsdecode(path)).exists()):
                self._note(what, more[0] if what in ("replace", "rename") else path)
            return call(path, *more, **options)

        return watched

    def _open(self, file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return self.io_open(file, mode, *more, **options)
        self._note("open", file)
        opened = self.io_open(file, mode, *more, **options)
        write = opened.write

        def written(content: Any) -> int:
            try:
                self._note("write", file)
            except OSError:
                write(content[: len(content) // 2])  # a disk is seldom full at the beginning of a file
                opened.flush()
                raise
            return int(write(content))

        opened.write = written  # type: ignore[method-assign]
        return opened

    def _open_descriptor(self, path: Any, flags: int, *more: Any, **options: Any) -> int:
        if flags & os.O_CREAT and not Path(os.fsdecode(path)).exists():
            self._note("open", path)
        return self.os_open(path, flags, *more, **options)

    def _fsync(self, descriptor: int) -> None:
        self._note("fsync", f"/proc/self/fd/{descriptor}")  # nothing else: a test needs no power cut


class Full:
    """A disk that refuses the n-th event (from 1) and, if it `stays` full, all later ones that need space."""

    def __init__(self, n: int, error: int = errno.ENOSPC, stays: bool = True) -> None:
        self.n, self.error, self.stays = n, error, stays
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        later = self.stays and len(self.events) > self.n > 0 and event[0] in CREATING
        if len(self.events) == self.n or later:
            raise OSError(self.error, os.strerror(self.error), event[1])


def events_of(root: Path, action: Callable[[], object]) -> list[Event]:
    """Do something and return its events in a folder."""
    full = Full(0)
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, root, full)
        action()
    return full.events
