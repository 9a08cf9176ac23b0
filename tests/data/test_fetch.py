"""Downloads against a local server: resumed, checked, unpacked safely, with clear errors."""

import gc
import hashlib
import io
import os
import socket
import tarfile
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from scommer.data.fetch import Source, fetch
from scommer.errors import RunError, UsageError

NOISE = np.random.default_rng(5).bytes(600_000)  # incompressible, so that it takes several blocks


def packed(*members, noise=NOISE):
    """A tar.gz of set/noise, set/deep/note and more members: (name, content) or TarInfo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in [("set/noise", noise), ("set/deep/note", b"hello"), *members]:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


@dataclass
class Site:
    """A local server, with the faults that a test needs."""

    body: bytes = field(default_factory=packed)
    ranges: bool = True
    cut: int | None = None  # bytes after which the connection breaks
    shift: int = 0  # sends another range than the requested one
    status: int | None = None
    always_partial: bool = False  # answers 206 to every request
    location: str | None = None  # redirects there
    endless: bool = False
    seen: list[str | None] = field(default_factory=list)  # the Range header of every request
    url: str = ""

    def source(self, **changes):
        values = {
            "archive": "set.tar.gz",
            "md5": hashlib.md5(self.body).hexdigest(),
            "folder": "set",
            "size": len(self.body),
        }
        return Source(**({"url": f"{self.url}/set.tar.gz"} | values | changes))

    def answer(self, handler):
        asked = handler.headers["Range"]
        self.seen.append(asked)
        if self.status or handler.path != "/set.tar.gz":
            return handler.send_error(self.status or 404)
        if self.location is not None:
            handler.send_response(302)
            handler.send_header("Location", self.location)
            return handler.end_headers()
        if self.endless:
            handler.send_response(200)
            handler.end_headers()
            while True:
                handler.wfile.write(bytes(1 << 16))
        start = 0
        if self.always_partial:
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {self.shift}-{len(self.body) - 1}/{len(self.body)}")
        elif asked and self.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-")) + self.shift
            if start >= len(self.body):
                return handler.send_error(416)
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(self.body) - start))
        handler.end_headers()
        return handler.wfile.write(self.body[start:][: self.cut])


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with suppress(ConnectionError):  # the client has had enough
                site.answer(self)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # after a malformed redirect urllib leaves its socket to the garbage collector


def failed(kind, *args):
    with pytest.raises(kind) as caught:
        fetch(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_complete(folder):
    assert (folder / "noise").read_bytes() == NOISE
    assert (folder / "deep" / "note").read_bytes() == b"hello"
    assert [path.name for path in folder.parent.iterdir()] == ["set"]  # no archive, part or temporary folder


def test_fetch(site, tmp_path):
    calls = []
    root = tmp_path / "new" / "root"
    folder = fetch(site.source(), root, progress=lambda *call: calls.append(call))
    assert folder == root / "set"
    assert_complete(folder)
    size = len(site.body)
    assert calls[0] == (0, size)
    assert calls[-1] == (size, size)
    assert len(calls) > 3
    assert calls == sorted(calls)
    assert site.seen == [None]


def test_an_existing_folder_is_not_downloaded(site, tmp_path):
    fetch(site.source(), tmp_path)
    fetch(site.source(), tmp_path)
    assert len(site.seen) == 1


def test_a_broken_download_is_resumed(site, tmp_path):
    site.cut = 200_000
    message = failed(RunError, site.source(), tmp_path)
    assert f"stopped at 200000 of {len(site.body)} bytes: run this again to resume" in message
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar.gz.part"]
    assert (tmp_path / "set.tar.gz.part").read_bytes() == site.body[:200_000]
    failed(RunError, site.source(), tmp_path)

    site.cut, calls = None, []
    assert_complete(fetch(site.source(), tmp_path, progress=lambda *call: calls.append(call)))
    assert site.seen == [None, "bytes=200000-", "bytes=400000-"]
    assert calls[0] == (400_000, len(site.body))


def test_a_server_without_ranges_starts_over(site, tmp_path):
    site.ranges = False
    (tmp_path / "set.tar.gz.part").write_bytes(site.body[:1000])
    assert_complete(fetch(site.source(), tmp_path))
    assert site.seen == ["bytes=1000-"]


@pytest.mark.parametrize("extra", [b"", b"more"])
def test_a_part_that_cannot_be_resumed_is_replaced(site, tmp_path, extra):
    (tmp_path / "set.tar.gz.part").write_bytes(b"x" * len(site.body) + extra)
    assert_complete(fetch(site.source(), tmp_path))
    assert site.seen == [f"bytes={len(site.body) + len(extra)}-", None]  # 416, then from the start


def test_another_range_than_requested_is_not_appended(site, tmp_path):
    site.shift = 10
    (tmp_path / "set.tar.gz.part").write_bytes(site.body[:1000])
    assert_complete(fetch(site.source(), tmp_path))
    assert site.seen == ["bytes=1000-", None]


def test_a_complete_part_needs_no_network(site, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(site.body)
    assert_complete(fetch(site.source(), tmp_path))
    assert site.seen == []


def test_a_wrong_md5_sum_is_an_error(site, tmp_path):
    message = failed(RunError, site.source(md5="0" * 32), tmp_path)
    assert f"md5 {hashlib.md5(site.body).hexdigest()}, expected {'0' * 32}: it was deleted" in message
    assert not list(tmp_path.iterdir())


def test_a_damaged_part_is_deleted_so_that_the_next_run_succeeds(site, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(b"x" * 1000)
    failed(RunError, site.source(), tmp_path)
    assert_complete(fetch(site.source(), tmp_path))


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        ("../escaped", b"x"),
        ("set/../../escaped", b"x"),
        ("set/../escaped", b"x"),
        ("other/escaped", b"x"),
        ("settle", b"x"),
        ("{root}/escaped", b"x"),
        special("set/link", tarfile.SYMTYPE, "../../escaped"),
        special("set/link", tarfile.SYMTYPE, "noise"),
        special("set/link", tarfile.LNKTYPE, "set/noise"),
        special("set/pipe", tarfile.FIFOTYPE),
        special("set/device", tarfile.CHRTYPE),
    ],
    ids=lambda member: member.name if isinstance(member, tarfile.TarInfo) else member[0],
)
def test_unsafe_members_are_refused(site, tmp_path, member):
    root = tmp_path / "root"
    if isinstance(member, tuple):
        member = member[0].format(root=tmp_path), member[1]
    site.body = packed(member)
    message = failed(RunError, site.source(), root)
    assert "expected only files and folders in set: nothing was unpacked" in message
    assert [path.name for path in tmp_path.rglob("*")] == ["root", "set.tar.gz.part"]


@pytest.mark.parametrize("body", [b"no archive", packed()[:100_000], packed()[:200] + bytes(1000)])
def test_an_unreadable_archive_is_an_error(site, tmp_path, body):
    site.body = body
    assert "is not a readable tar.gz" in failed(RunError, site.source(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar.gz.part"]


def test_an_archive_without_the_folder_is_an_error(site, tmp_path):
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w:gz").close()
    site.body = buffer.getvalue()
    assert "does not contain the folder set" in failed(RunError, site.source(), tmp_path)


def test_an_interruption_leaves_no_incomplete_folder(site, tmp_path, monkeypatch):
    whole = tarfile.TarFile.extractall

    def interrupted(archive, path, members):
        whole(archive, path, members[:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extractall", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(site.source(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar.gz.part"]
    assert_complete(fetch(site.source(), tmp_path))
    assert len(site.seen) == 1


@pytest.mark.parametrize("status", [404, 416, 503])
def test_http_errors_keep_the_part(site, tmp_path, status):
    site.status = status
    (tmp_path / "set.tar.gz.part").write_bytes(b"begun")
    assert f"set.tar.gz answered {status}" in failed(RunError, site.source(), tmp_path)
    assert (tmp_path / "set.tar.gz.part").read_bytes() == b"begun"


def test_a_refused_connection_is_an_error(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "a.part").write_bytes(b"begun")
    source = Source(url=f"http://127.0.0.1:{port}/a", archive="a", md5="0" * 32, folder="set", size=1)
    message = failed(RunError, source, tmp_path)
    assert "Connection refused" in message
    assert "run this again to resume" in message
    assert (tmp_path / "a.part").read_bytes() == b"begun"


def test_a_closed_connection_is_an_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a"
        message = failed(RunError, Source(url=url, archive="a", md5="0" * 32, folder="set", size=1), tmp_path)
        thread.join()
    assert f"cannot download {url} (" in message


def test_a_file_in_place_of_the_folder_is_an_error(site, tmp_path):
    (tmp_path / "set").touch()
    assert f"{tmp_path / 'set'} is not a folder" in failed(UsageError, site.source(), tmp_path)
    message = failed(UsageError, site.source(), tmp_path / "set" / "below")
    assert "Not a directory" in message
    assert "--data or SCOMMER_DATA" in message
    assert site.seen == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_an_error(site, tmp_path):
    tmp_path.chmod(0o500)
    assert "Permission denied" in failed(UsageError, site.source(), tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_an_error(site, tmp_path):
    (tmp_path / "set.tar.gz.part").symlink_to("/dev/full")
    assert "No space left on device" in failed(RunError, site.source(), tmp_path)


def test_what_a_killed_process_left_is_removed(site, tmp_path):
    """It was killed while it unpacked, and another one after that."""
    folder = fetch(site.source(), tmp_path)
    (tmp_path / ".set-killed" / "set").mkdir(parents=True)
    (tmp_path / ".set-killed" / "set" / "noise").write_bytes(b"half")
    (tmp_path / "set.tar.gz.part").write_bytes(site.body)
    assert fetch(site.source(), tmp_path) == folder
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert (folder / "deep" / "note").read_bytes() == b"hello"


def test_a_server_that_always_sends_another_range_is_asked_twice(site, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(site.body[:1000])
    site.always_partial, site.shift = True, 5
    assert "a different part of the file" in failed(RunError, site.source(), tmp_path)
    assert site.seen == ["bytes=1000-", None]
    assert (tmp_path / "set.tar.gz.part").read_bytes() == site.body[:1000]


def test_a_whole_file_sent_as_a_range_replaces_the_part(site, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(b"something else")
    site.always_partial = True
    assert (fetch(site.source(), tmp_path) / "deep" / "note").read_bytes() == b"hello"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # urllib leaves a socket open
@pytest.mark.parametrize("location", ["http://[::1/x", "gopher://somewhere", "http://a b/", "//", "http://\x7f", ""])
def test_a_malformed_redirect_is_an_error(site, tmp_path, location):
    site.location = location
    assert site.url in failed(RunError, site.source(), tmp_path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_endless_body_is_cut_off(site, tmp_path):
    site.endless = True
    assert f"more than the {len(site.body)} bytes" in failed(RunError, site.source(), tmp_path)
    assert (tmp_path / "set.tar.gz.part").stat().st_size <= len(site.body)


def test_a_download_has_a_time_limit(site, tmp_path, monkeypatch):
    monkeypatch.setattr("scommer.data.fetch.LONGEST", -1.0)
    assert "too slow" in failed(RunError, site.source(), tmp_path)
