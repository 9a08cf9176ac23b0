"""Downloads of data sets: resumed where they broke off, checked, and unpacked whole or not at all."""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from scommer.errors import RunError, UsageError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server says so

BLOCK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Source:
    url: str
    archive: str  # file name of the tar.gz
    md5: str
    folder: str  # the one folder that the archive holds


SOURCES = {
    "cifar10": Source(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        archive="cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
    ),
    "cifar100": Source(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        archive="cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
    ),
}


def fetch(source: Source, root: Path, *, progress: Progress | None = None) -> Path:
    """The folder of `source` below `root`, downloaded and unpacked unless it is there already."""
    folder = root / source.folder
    if folder.is_dir():  # it only ever appears whole, by a rename
        return folder
    if folder.exists():
        raise UsageError(f"{folder} is not a folder: move it away, or name another folder with --data")
    part = root / f"{source.archive}.part"
    with _disk(root):
        root.mkdir(parents=True, exist_ok=True)
        if not (part.is_file() and md5_of(part) == source.md5):
            _download(source.url, part, progress or (lambda done, total: None))
            _check(part, source)
        _unpack(part, source, folder)
        part.unlink()
    return folder


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(url: str, part: Path, progress: Progress) -> None:
    """Brings `part` to its full length, beginning where it ends now if the server can do so."""
    done = part.stat().st_size if part.exists() else 0
    with _open(url, done) as answer:
        resumed = answer.status == HTTPStatus.PARTIAL_CONTENT
        if not resumed:
            done = 0
        total = done + answer.length if answer.length is not None else None
        with part.open("ab" if resumed else "wb") as file:
            progress(done, total)
            while block := _read(answer, url):
                file.write(block)
                done += len(block)
                progress(done, total)
    if total is not None and done < total:
        raise RunError(f"the download of {url} broke off at {done} of {total} bytes: run this again to resume")


def _open(url: str, start: int) -> HTTPResponse:
    headers = {"User-Agent": "scommer"} | ({"Range": f"bytes={start}-"} if start else {})
    with _network(url):
        try:
            answer: HTTPResponse = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return _open(url, 0)  # the part is no beginning of this file
            raise RunError(
                f"{url} answered {error.code} {error.reason}: try again later, "
                "or unpack the archive by hand and name its parent folder with --data"
            ) from error
    sent = answer.headers["Content-Range"] or ""
    if answer.status == HTTPStatus.PARTIAL_CONTENT and not sent.startswith(f"bytes {start}-"):
        answer.close()
        return _open(url, 0)  # another range than the one asked for
    return answer


def _read(answer: HTTPResponse, url: str) -> bytes:
    with _network(url):
        return answer.read1(BLOCK)  # unlike read(), gives what came before a break


@contextmanager
def _network(url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise RunError(
            f"cannot download {url} ({reason or type(error).__name__}): "
            "check the network and run this again; what has arrived is kept"
        ) from error


@contextmanager
def _disk(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write below {root} ({error.strerror or error}): "
            "make room or set its permissions, or name another folder with --data or SCOMMER_DATA"
        ) from error


def _check(part: Path, source: Source) -> None:
    found = md5_of(part)
    if found != source.md5:
        part.unlink()
        raise RunError(
            f"the file from {source.url} has md5 {found}, expected {source.md5}: "
            "it was deleted; run this again to download it anew"
        )


def _unpack(part: Path, source: Source, folder: Path) -> None:
    """Unpacks beside `folder` and renames, so that an interruption never leaves half a folder."""
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        try:
            with tarfile.open(part, "r:gz") as archive:
                members = archive.getmembers()
                for member in members:
                    _check_member(member, part, source.folder)
                # A second guard, against modes and owners too; Python before 3.11.4 does not have it.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(temporary, members)
        except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise RunError(f"{part} is no readable tar.gz ({error}): delete it and run this again") from error
        unpacked = Path(temporary, source.folder)
        if not unpacked.is_dir():
            raise RunError(f"{part} holds no folder {source.folder}: nothing was unpacked; delete the file")
        unpacked.rename(folder)


def _check_member(member: tarfile.TarInfo, part: Path, folder: str) -> None:
    path = PurePosixPath(member.name)
    inside = path.parts[:1] == (folder,) and ".." not in path.parts
    if not inside or not (member.isreg() or member.isdir()):
        raise RunError(
            f"{part} holds {member.name!r}, expected only files and folders in {folder}: "
            "nothing was unpacked; delete the file and get it from a source you trust"
        )
