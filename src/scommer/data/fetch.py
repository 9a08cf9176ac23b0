"""Download a data set: resume partial downloads, check the md5 sum, unpack completely or not at all."""

import gzip
import hashlib
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from shutil import rmtree
from tempfile import TemporaryDirectory
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from scommer.errors import RunError, UsageError
from scommer.files import disk_error

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in total if the server says so

BLOCK = 1 << 18  # bytes
TIMEOUT = 30.0  # seconds without data
LONGEST = 6 * 3600.0  # seconds for a whole download


@dataclass(frozen=True)
class Source:
    """Where to download the archive of a data set, and what it contains."""

    url: str
    archive: str  # file name of the tar.gz
    md5: str
    folder: str  # the only folder in the archive
    size: int  # bytes of the archive


SOURCES = {
    "cifar10": Source(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        archive="cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
        size=170_498_071,
    ),
    "cifar100": Source(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        archive="cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
        size=169_001_437,
    ),
}


def fetch(source: Source, root: Path, *, progress: Progress | None = None) -> Path:
    """Return the folder of `source` below `root`; download and unpack it if it does not exist."""
    folder = root / source.folder
    part = root / f"{source.archive}.part"
    if folder.is_dir():  # complete: it is created by a rename
        _remove_leftovers(folder, part)
        return folder
    if folder.exists():
        raise UsageError(f"{folder} is not a folder: move it, or give another folder with --data")
    with _disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        if not (part.is_file() and md5_of(part) == source.md5):
            _download(source, part, progress or (lambda done, total: None))
            _check_md5(part, source)
        _unpack(part, source, folder)
    _remove_leftovers(folder, part)
    return folder


def _remove_leftovers(folder: Path, part: Path) -> None:
    """Remove files not needed once the folder is complete, including leftovers of killed processes."""
    with suppress(OSError):
        part.unlink(missing_ok=True)
        for left in folder.parent.glob(f".{folder.name}-*"):
            rmtree(left, ignore_errors=True)


def md5_of(path: Path) -> str:
    """Return the md5 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(source: Source, part: Path, progress: Progress) -> None:
    """Download to `part`, continuing from its end if the server supports that."""
    url, end = source.url, time.monotonic() + LONGEST
    response, done = _open(url, part.stat().st_size if part.exists() else 0)
    with response:
        total = done + response.length if response.length is not None else None
        with part.open("ab" if done else "wb") as file:
            progress(done, total)
            while block := _read(response, url):
                done += len(block)
                if done > source.size:
                    raise RunError(f"{url} sends more than the {source.size} bytes expected: try again later")
                if time.monotonic() > end:
                    raise RunError(f"{url} is too slow, {done} bytes in {LONGEST:g} s: run this again to resume")
                file.write(block)
                progress(done, total)
    if total is not None and done < total:
        raise RunError(f"the download of {url} stopped at {done} of {total} bytes: run this again to resume")


def _open(url: str, start: int) -> tuple[HTTPResponse, int]:
    """Return the response, and the position in the file at which it begins: `start`, or 0."""
    headers = {"User-Agent": "scommer"} | ({"Range": f"bytes={start}-"} if start else {})
    with _network_errors(url):
        try:
            response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return _open(url, 0)  # the part is at least as long as the file
            reason = " ".join(str(error.reason).split())  # on one line
            raise RunError(
                f"{url} answered {error.code} {reason}: try again later, "
                "or unpack the archive yourself and pass the parent folder with --data"
            ) from error
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return response, 0
    if (response.headers["Content-Range"] or "").startswith(f"bytes {start}-"):
        return response, start
    response.close()
    if not start:
        raise RunError(f"{url} sends a different part of the file than requested: try again later")
    return _open(url, 0)


def _read(response: HTTPResponse, url: str) -> bytes:
    with _network_errors(url):
        return response.read1(BLOCK)  # unlike read(), returns what arrived before the connection broke


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException, ValueError) as error:  # the last for malformed redirects
        reason = error.reason if isinstance(error, URLError) else error
        raise RunError(
            f"cannot download {url} ({reason or type(error).__name__}): check the network and run this again to resume"
        ) from error


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(
            f"cannot write below {root} ({error.strerror or error}): "
            "free some space, change the permissions, or give another folder with --data or SCOMMER_DATA",
            error,
        ) from error


def _check_md5(part: Path, source: Source) -> None:
    found = md5_of(part)
    if found != source.md5:
        part.unlink()
        raise RunError(
            f"the file from {source.url} has md5 {found}, expected {source.md5}: "
            "it was deleted; run this again to download it"
        )


def _unpack(part: Path, source: Source, folder: Path) -> None:
    """Unpack to a temporary folder and rename it, so that an interruption never leaves an incomplete `folder`."""
    temporary_folder = TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-", ignore_cleanup_errors=True)
    with temporary_folder as temporary:
        try:
            with tarfile.open(part, "r:gz") as archive:
                members = archive.getmembers()
                for member in members:
                    _check_member(member, part, source.folder)
                # A second check, also of modes and owners; Python before 3.11.4 does not have it.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(temporary, members)
        except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise RunError(f"{part} is not a readable tar.gz ({error}): delete it and run this again") from error
        unpacked = Path(temporary, source.folder)
        if not unpacked.is_dir():
            raise RunError(f"{part} does not contain the folder {source.folder}: delete it and run this again")
        unpacked.rename(folder)


def _check_member(member: tarfile.TarInfo, part: Path, folder: str) -> None:
    path = PurePosixPath(member.name)
    inside = path.parts[:1] == (folder,) and ".." not in path.parts
    if not inside or not (member.isreg() or member.isdir()):
        raise RunError(
            f"{part} contains {member.name!r}, expected only files and folders in {folder}: "
            "nothing was unpacked; delete it and download it from a source you trust"
        )
