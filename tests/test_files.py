"""Files are written whole or not at all, whatever happens meanwhile."""

import errno
import os
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from scommer.analysis import figures, report
from scommer.errors import RunError, UsageError
from scommer.files import write_atomically, write_output

FAULTS = {"open": "pathlib.Path.open", "fsync": "os.fsync", "replace": "pathlib.Path.replace"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_point_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(FAULTS[fault], full)
        with pytest.raises(RunError, match="No space left"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_reader_sees_the_old_content_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old" * 1000)
    with path.open("rb") as reader:
        assert reader.read(3) == b"old"
        write_atomically(path, b"new, and shorter")
        assert reader.read() == b"old" * 999
    assert path.read_bytes() == b"new, and shorter"


def test_what_a_killed_process_was_writing_is_removed_by_the_next_writer_of_any_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = (
        "import os, signal, pathlib, scommer.files as f\n"
        "f.os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"f.write_atomically(pathlib.Path({str(path)!r}), b'new')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode < 0
    (stale,) = tmp_path.iterdir()
    assert stale.suffix == ".partial"
    mine = stale.with_name(stale.name.replace(stale.name.split(".")[2].split("-")[1], str(os.getpid()), 1))
    mine.write_bytes(b"another thread is writing")
    write_atomically(tmp_path / "another file", b"newer")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([mine.name, "another file"])


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_sync_folders_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    sync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(error, os.strerror(error))
        sync(descriptor)

    monkeypatch.setattr("os.fsync", files_only)
    expected = pytest.raises(RunError, match="error") if error == errno.EIO else nullcontext()
    with expected:
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomically(path, b"1")
    assert path.read_bytes() == b"1"
    with pytest.raises(RunError, match="too long"):
        write_atomically(tmp_path / ("x" * 256), b"1")


def test_an_output_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_output(tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf", "a.html"])
def test_a_full_disk_does_not_destroy_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Through every command that writes a file for its user."""
    path = tmp_path / name
    path.write_bytes(b"old")

    def write() -> None:
        if name.endswith("html"):
            report.write("<html>", path)
        else:
            figures.save(Figure(), path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(RunError, match="No space left"):
            write()
    assert path.read_bytes() == b"old"
    write()
    assert path.read_bytes() != b"old"


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot write"):
        write_output(tmp_path / "file" / "a.png", b"1")


def test_an_output_may_be_a_device_or_a_pipe(tmp_path: Path) -> None:
    """Which is written to, and not replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert pipe.is_fifo()
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(RunError, match="No space left"):
        write_output(tmp_path / "full", b"content")
    assert Path("/dev/full").is_char_device()
