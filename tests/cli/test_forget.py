"""`scommer forget`: what it removes from a classifier's file, and what it refuses."""

import signal
from pathlib import Path

import numpy as np
import pytest
from calling import call
from filelock import FileLock
from real_rows import DX, DXT, DY, X, Y

from scommer import LifelongClassifier

Capture = pytest.CaptureFixture[str]
NAMES = np.array(["cat", "dog", "guinea pig, red"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A classifier of three classes, whose file holds 30 images."""
    path, some = tmp_path / "model", np.flatnonzero(DY < 3)[:120]
    made = LifelongClassifier(buffer=30, settings={"width": 4, "epochs": 2}, device="cpu")
    made.fit((DX[some] * 255).astype(np.uint8), NAMES[DY[some]]).save(path)
    return path


def test_a_class_and_its_images_are_gone(model: Path, capsys: Capture) -> None:
    images, labels = LifelongClassifier.load(model, device="cpu").remembered_
    held = [image.tobytes() in model.read_bytes() for image in images]
    assert all(held)  # so that this test can fail
    code, out, err = call(capsys, "forget", str(model), "--class", "guinea pig, red")
    assert (code, err) == (0, "")
    removed = int(np.sum(labels == "guinea pig, red"))
    assert out == f"{model}: forgot guinea pig, red and {removed} remembered inputs; 2 classes left\n"
    kept = [image.tobytes() in model.read_bytes() for image in images]
    assert kept == (labels != "guinea pig, red").tolist()
    left = LifelongClassifier.load(model, device="cpu")
    assert set(left.predict((DXT * 255).astype(np.uint8))) == {"cat", "dog"}
    code, out, _ = call(capsys, "forget", str(model), "--class", "guinea pig, red")  # once more
    assert (code, "and 0 remembered inputs; 2 classes left" in out) == (0, True)


def test_several_classes_of_rows_with_numbers(tmp_path: Path, capsys: Capture) -> None:
    """A classifier need not be one of images: its labels may be numbers, and its inputs pass through a function."""
    path = tmp_path / "rows"
    LifelongClassifier(device="cpu", features=np.square).fit(X[Y < 4], Y[Y < 4]).save(path)
    code, out, _ = call(capsys, "forget", str(path), "--class", "1", "--class", "3", "--class", "1")
    assert (code, out) == (0, f"{path}: forgot 1, 3 and 0 remembered inputs; 2 classes left\n")
    p = LifelongClassifier.load(path, device="cpu", features=np.square).predict_proba(X)
    assert p.any(0).tolist() == [True, False, True, False]


def test_what_cannot_be_forgotten_is_refused_and_changes_nothing(model: Path, capsys: Capture) -> None:
    before = model.read_bytes()
    everything = [word for name in NAMES for word in ("--class", name)]
    (model.parent / "note").write_text("no classifier")
    for words, message in (
        ([model, "--class", "dgo"], "unknown class 'dgo': did you mean 'dog'?"),
        ([model, "--class", "cat", "--class", "owl"], "unknown class 'owl': known: cat, dog, guinea pig, red"),
        ([model], "missing option '--class'"),
        ([model, *everything], f"{model} has learned no other class: name fewer classes, or delete the file"),
        ([model.parent / "gone", "--class", "cat"], "No such file or directory"),
        ([model.parent / "no" / "model", "--class", "cat"], "create it first"),
        ([model.parent / "note", "--class", "cat"], "not a classifier"),
    ):
        code, _, err = call(capsys, "forget", *map(str, words))
        assert (code, err.count("\n")) == (2, 1), err
        assert message in err
    with FileLock(f"{model}.lock"):
        code, _, err = call(capsys, "forget", str(model), "--class", "cat")
    assert (code, "is being written by another process" in err) == (2, True)
    assert model.read_bytes() == before


def test_a_stop_changes_nothing(model: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    before = model.read_bytes()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    monkeypatch.setattr(LifelongClassifier, "save", lambda *_: signal.raise_signal(signal.SIGINT))
    code, _, err = call(capsys, "forget", str(model), "--class", "cat")
    signal.signal(signal.SIGINT, handler)
    assert (code, err) == (130, f"scommer: stopped: nothing was forgotten, and {model} is unchanged\n")
    assert model.read_bytes() == before
