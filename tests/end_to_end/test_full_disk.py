"""A disk that is full at any write of a command: one clear line, nothing is lost, and the same command works later."""

import errno
import hashlib
import io
import os
import sys
import tarfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from calling import call, exit_code
from disk import Disk, Event, Full, events_of
from tiny import QUICK, assert_same, experiment, result, stream

from scommer import LifelongClassifier, class_il, run
from scommer.cli.common import console
from scommer.data.fetch import Source, fetch
from scommer.errors import RunError
from scommer.runs.logs import LOGS
from scommer.runs.runner import Interrupted
from scommer.streams import STREAMS

Capture = pytest.CaptureFixture[str]
SETTINGS = [word for name, value in (QUICK | {"epochs": 1}).items() for word in ("--set", f"{name}={value}")]
RUN = ["run", "s-tiny", "-m", "er", "-b", "8", *SETTINGS, "--device", "cpu", "--save-weights"]
OFTEN = ["--checkpoint-seconds", "0"]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STREAMS, "s-tiny", (lambda root: stream().data, partial(class_il, tasks=2)))
    monkeypatch.setattr("scommer.provenance._git", lambda *_: None)  # some hundred records would call it


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run."""
    out = tmp_path_factory.mktemp("finished")
    run(experiment("er"), out=out, device="cpu", weights=True)
    return next(out.iterdir())


def with_full_disk(root: Path, full: Full, action: Callable[[], object]) -> Event:
    """Do something, and return the event that failed."""
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, root, full)
        action()
    return full.events[full.n - 1]


def fails(capsys: Capture, root: Path, full: Full, command: list[str]) -> Event:
    """Run a command on a full disk: its error is one line, unless only a file could not be removed."""
    codes: list[int] = []
    capsys.readouterr()
    failed = with_full_disk(root, full, lambda: codes.append(exit_code(*command)))
    err = capsys.readouterr().err
    if failed[0] == "unlink" and codes == [0]:
        assert err == ""
    else:
        assert codes == [1], (failed, err)
        assert len(err.splitlines()) == 1, err
        assert os.strerror(full.error) in err
    assert not list(root.rglob(".*.partial")), failed
    return failed


# --- runs


@pytest.mark.parametrize("stays", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_run_on_a_full_disk(tmp_path: Path, capsys: Capture, stays: bool) -> None:
    events = events_of(tmp_path, lambda: exit_code(*RUN, *OFTEN, "--out", tmp_path / "whole"))
    (whole,) = (tmp_path / "whole").iterdir()
    numbers = range(1, len(events) + 1)
    names = {event[1].split("-")[0] for event in events}
    assert names >= {"progress.json", "checkpoint", "weights.safetensors", "arrays.npz", "record.json", ".lock"}
    for n in [*numbers[:12], *numbers[12:-20:17], *numbers[-20:]]:  # each checkpoint is written like the others
        out = tmp_path / str(n)
        fails(capsys, tmp_path, Full(n, stays=stays), [*RUN, *OFTEN, "--out", str(out)])
        assert exit_code(*RUN, "--out", out) == 0
        assert_same(result(out / whole.name), result(whole))


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_otherwise(tmp_path: Path, capsys: Capture, error: int) -> None:
    for n in (1, 2, 3, 9):  # its folder, the lock, the progress, a checkpoint
        fails(capsys, tmp_path, Full(n, error), [*RUN, *OFTEN, "--out", str(tmp_path / str(n))])


def test_starting_over_on_a_full_disk_keeps_the_earlier_results(tmp_path: Path, capsys: Capture) -> None:
    command = [*RUN, "--out", str(tmp_path)]
    assert exit_code(*command) == 0
    (folder,) = tmp_path.iterdir()
    before = result(folder)
    fresh = [*command, "--fresh"]
    first = next(n for n in range(1, 20) if fails(capsys, tmp_path, Full(n), fresh)[0] == "unlink")
    assert first == 6  # after the progress was written, which showed that there is space
    assert exit_code(*command) == 0
    assert_same(result(folder), before)


def test_one_run_of_several_on_a_full_disk(tmp_path: Path, capsys: Capture) -> None:
    """The others continue and have their records; the same command then runs the one that is missing."""
    command = [*RUN, "--seeds", "0-2", "--out", str(tmp_path / "runs")]

    def full(event: Event) -> None:
        if event[1].startswith("weights"):
            weights.append(event)
            if len(weights) == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    weights: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, tmp_path, full)
        code, _, err = call(capsys, *command)
    assert code == 1
    assert "No space left on device" in err
    assert len(list(tmp_path.rglob("record.json"))) == 2
    assert exit_code(*command) == 0
    assert exit_code(*command[:-1], str(tmp_path / "whole")) == 0
    for folder in (tmp_path / "whole").iterdir():
        assert_same(result(tmp_path / "runs" / folder.name), result(folder))


class FullLog:
    """A log that fails when it is opened, written or closed."""

    def __init__(self, when: str) -> None:
        self.when, self.calls = when, 0

    def __call__(self, *_: object) -> "FullLog":
        return self._try("open")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.calls += 1
        self._try("write")

    def close(self) -> None:
        self._try("close")

    def _try(self, what: str) -> "FullLog":
        if what == self.when:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self


@pytest.mark.parametrize("when", ["write", "close"])
def test_a_log_that_fails_does_not_stop_a_run(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, finished: Path, when: str
) -> None:
    log = FullLog(when)
    monkeypatch.setitem(LOGS, "tensorboard", log)
    with pytest.warns(UserWarning, match=r"its curves are incomplete, tensorboard failed .*No space left on device"):
        run(experiment("er"), out=tmp_path, device="cpu", weights=True, log="tensorboard")
    assert_same(result(next(tmp_path.iterdir())), result(finished))
    assert log.calls == 1 or when == "close"  # not tried again


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOGS, "tensorboard", FullLog("open"))
    with pytest.raises(RunError, match=r"--log tensorboard cannot be used .*No space left on device"):
        run(experiment("er"), out=tmp_path, device="cpu", log="tensorboard")
    assert not list(tmp_path.iterdir())


def test_a_stop_on_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, finished: Path) -> None:
    """The state at the stop cannot be saved: the run is resumed from before."""
    from test_kill_points import stopped, term

    options = {"out": tmp_path, "device": "cpu", "weights": True}
    stopped(tmp_path, "er", "step", term, Interrupted)
    (saved,) = tmp_path.glob("*/checkpoint-*")
    full = Full(7)  # the lock is there: after the progress comes the checkpoint
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, tmp_path, full)
        with pytest.raises(RunError, match="No space left"):
            run(experiment("er"), **options, minutes=1e-9)
    assert list(tmp_path.glob("*/checkpoint-*")) == [saved]
    run(experiment("er"), **options)
    assert_same(result(next(tmp_path.iterdir())), result(finished))


# --- files that a user asked for


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("name", ["figure", "report"])
def test_an_output_on_a_full_disk(
    tmp_path: Path, capsys: Capture, finished: Path, name: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scommer.analysis.report.report", lambda records: "<html>" * 200)  # takes a second
    command = {"figure": ["figure", "matrices"], "report": ["report"]}[name]
    path = tmp_path / ("a.svg" if name == "figure" else "a.html")
    command += [str(finished), "-o", str(path)]
    numbers = range(1, 1 + len(events_of(tmp_path, lambda: exit_code(*command))))
    assert len(numbers) == 5
    path.write_bytes(b"old")
    for n in numbers:
        failed = fails(capsys, tmp_path, Full(n, error), command)
        if n < 5:
            assert path.read_bytes() == b"old", failed
    assert exit_code(*command) == 0
    assert len(path.read_bytes()) > 1000
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_new_folder_for_an_output_on_a_full_disk(tmp_path: Path, capsys: Capture, finished: Path) -> None:
    command = ["figure", "matrices", str(finished), "-o", str(tmp_path / "new" / "a.svg")]
    assert fails(capsys, tmp_path, Full(1), command) == ("mkdir", "new")
    assert exit_code(*command) == 0


def test_a_classifier_saved_to_a_full_disk(tmp_path: Path) -> None:
    data, path = stream().data, tmp_path / "model"
    model = LifelongClassifier(4, method="er", buffer=8, settings=QUICK, device="cpu")
    model.partial_fit(data.train_images, data.train_labels, layout="NCHW")
    model.save(path)
    old = path.read_bytes()
    model.partial_fit(data.train_images, data.train_labels, layout="NCHW")
    for n in range(1, 5):
        with pytest.raises(RunError, match="No space left on device"):
            with_full_disk(tmp_path, Full(n), lambda: model.save(path))
        assert path.read_bytes() == old
        assert [p.name for p in tmp_path.iterdir()] == ["model"]
    model.save(path)
    assert LifelongClassifier.load(path).history_ == model.history_


PRINTING = {
    "list": ["list"], "list of settings": ["list", "s-tiny"], "table": ["table", "main", "--runs", "RUNS"],
    "table as csv": ["table", "main", "--runs", "RUNS", "--as", "csv"], "results": ["results", "--runs", "RUNS"],
    "show": ["show", "RUN"], "show as json": ["show", "RUN", "--json"], "compare": ["compare", "RUN", "RUN"],
    "run": ["run", "s-tiny", "-m", "er", "-b", "8", *SETTINGS, "--device", "cpu", "--out", "RUNS"],
    "data": ["data", "where"], "predict": ["predict", "RUN", "IMAGE"], "version": ["--version"],
    "help": ["run", "--help"],
}  # fmt: skip


@pytest.mark.parametrize("case", PRINTING)
def test_a_full_disk_behind_the_output(
    case: str, finished: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    places = {"RUN": str(finished), "RUNS": str(finished.parent), "IMAGE": str(tmp_path / "a.png")}
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = exit_code(*(places.get(word, word) for word in PRINTING[case]))
    console._buffer.clear()  # else the next command of this process would print it
    err = capsys.readouterr().err
    assert code == 1
    assert "No space left on device" in err
    assert len(err.splitlines()) == 1, err


# --- data sets


def test_a_data_set_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("set/one", "set/two"):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, io.BytesIO(b"hello"))
    served = packed.getvalue()
    source = Source("http://here", "set.tar.gz", hashlib.md5(served).hexdigest(), "set", len(served))

    class Response(io.BytesIO):
        length = len(served)

    monkeypatch.setattr("scommer.data.fetch._open", lambda url, start: (Response(served), 0))

    def download(root: Path) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tarfile, "bltn_open", io.open)  # the one that is watched
            return fetch(source, root)

    events = events_of(tmp_path, lambda: download(tmp_path / "whole"))
    assert {what for what, _ in events} >= {"mkdir", "open", "write", "rename", "unlink"}
    for n in range(1, len(events) + 1):
        root = tmp_path / str(n)
        complete = events[n - 1][0] in ("unlink", "rmdir")  # only what is not needed any more stays
        expected = nullcontext() if complete else pytest.raises(RunError, match="No space left on device")
        with expected:
            with_full_disk(tmp_path, Full(n), partial(download, root))
        assert (root / "set").exists() == complete
        folder = download(root)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"one": b"hello", "two": b"hello"}
        assert [path.name for path in root.iterdir()] == ["set"]
