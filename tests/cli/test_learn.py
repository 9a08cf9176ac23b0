"""A classifier in a file: learn, learn more, predict, export."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from calling import call
from filelock import FileLock
from PIL import Image
from real_rows import DX, DXT, DY, DYT, X, Y

from scommer import LifelongClassifier
from scommer.errors import UsageError

Capture = pytest.CaptureFixture[str]
QUICK = ["--set", "width=8", "--device", "cpu"]


def write(folder: Path, classes: list[int], first: int, last: int) -> None:
    """A folder of class folders with images of digits."""
    for c in classes:
        (folder / f"digit {c}").mkdir(parents=True)
        for i in np.flatnonzero(c == DY)[first:last]:
            Image.fromarray((DX[i] * 255).astype(np.uint8)).save(folder / f"digit {c}" / f"{i}.png")


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("months")
    write(root / "january", [0, 1, 2], 0, 60)
    write(root / "february", [2, 3], 60, 100)
    (root / "test").mkdir()
    for i in np.flatnonzero(DYT < 4):
        Image.fromarray((DXT[i] * 255).astype(np.uint8)).save(root / "test" / f"{i}-{DYT[i]}.png")
    return root


def accuracy(capsys: Capture, model: Path, folder: Path, *classes: int) -> float:
    code, out, _ = call(capsys, "predict", str(model), str(folder), "--json", "--device", "cpu")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    right = {Path(line["file"]).stem: line["class"] for line in lines}
    found = [name == f"digit {stem[-1]}" for stem, name in right.items() if int(stem[-1]) in classes]
    return float(np.mean(found))


def test_months_of_folders(months: Path, tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "model.safetensors"
    code, out, err = call(capsys, "learn", str(model), str(months / "january"), *QUICK)
    assert (code, err) == (0, "")
    assert f"{model}: learned 180 images of 3 classes; 3 classes in all" in out
    assert accuracy(capsys, model, months / "test", 0, 1, 2) > 0.85
    code, out, err = call(capsys, "learn", str(model), str(months / "february"), "--device", "cpu")
    assert (code, err) == (0, "")
    assert "learned 80 images of 2 classes, new: digit 3; 4 classes in all" in out
    assert accuracy(capsys, model, months / "test", 3) > 0.5
    assert accuracy(capsys, model, months / "test", 0, 1, 2) > 0.75
    loaded = LifelongClassifier.load(model, device="cpu")
    assert [task["images"] for task in loaded.history_] == [180, 80]
    assert loaded.settings_["width"] == 8

    code, out, err = call(capsys, "export", str(model), "-o", str(tmp_path / "model.onnx"))
    assert (code, err) == (0, "")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    images = (DXT[:7, None] * 255).astype(np.uint8)
    np.testing.assert_allclose(
        session.run(None, {"images": images})[0], loaded.predict_proba(images, layout="NCHW"), atol=1e-4
    )


def test_broken_images_and_empty_folders(months: Path, tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "march", [4], 0, 20)
    (tmp_path / "march" / "digit 4" / "cut.png").write_bytes(b"\x89PNG")
    (tmp_path / "march" / "nothing").mkdir()
    call(capsys, "learn", str(tmp_path / "model"), str(months / "january"), *QUICK)
    before = (tmp_path / "model").read_bytes()
    code, _, err = call(capsys, "learn", str(tmp_path / "model"), str(tmp_path / "march"), "--device", "cpu")
    assert code == 2
    assert "cannot read" in err
    assert "cut.png" in err
    assert "--skip-broken leaves out" in err
    code, _, err = call(capsys, "learn", str(tmp_path / "new"), str(tmp_path / "march"), "--size", "0")
    assert (code, "skip-broken" in err) == (2, False)
    assert (tmp_path / "model").read_bytes() == before
    skip = ["learn", str(tmp_path / "model"), str(tmp_path / "march"), "--skip-broken", "--device", "cpu"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = call(capsys, *skip)
    assert code == 0
    assert f"skipped 1 folder without images: {tmp_path / 'march' / 'nothing'}" in err
    assert "skipped: cannot read" in err
    assert "learned 20 images of 1 class, new: digit 4" in out


def test_wrong_arguments(months: Path, tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "model"
    LifelongClassifier(settings={"width": 4, "epochs": 1}, device="cpu").fit(DX[:50], DY[:50]).save(tmp_path / "floats")
    call(capsys, "learn", str(model), str(months / "january"), "--set", "epochs=1", "--set", "width=4")
    (tmp_path / "note.txt").write_text("no classifier")
    (tmp_path / "empty").mkdir()
    january = str(months / "january")
    for words, message in (
        ([model, january, "--size", "5"], "exists, and --size is for a new classifier: leave it out"),
        ([tmp_path / "no" / "model", january], f"there is no folder {tmp_path / 'no'} for model: create it first"),
        ([tmp_path / "new", tmp_path / "gone"], "there is no folder"),
        ([tmp_path / "new", tmp_path / "empty"], "contains no folders: give the parent folder of the class folders"),
        ([tmp_path / "new", months / "test"], "contains no folders"),
        ([tmp_path / "new", january, "--method", "scomer"], "did you mean 'scommer'"),
        ([tmp_path / "new", january, "--set", "lrr=1"], "did you mean 'lr'"),
        ([tmp_path / "note.txt", january], "not a classifier"),
        ([tmp_path / "floats", january], "continue its training in Python"),
    ):
        code, _, err = call(capsys, "learn", *map(str, words))
        assert (code, err.count("\n")) == (2, 1), err
        assert message in err
    assert not (tmp_path / "no").exists()
    assert not (tmp_path / "new").exists()
    (tmp_path / "split" / "train" / "a").mkdir(parents=True)
    (tmp_path / "split" / "test" / "a").mkdir(parents=True)
    code, _, err = call(capsys, "learn", str(tmp_path / "new"), str(tmp_path / "split"))
    assert (code, "contains train and test: give the one to learn from" in err) == (2, True)
    with FileLock(f"{model}.lock"):
        code, _, err = call(capsys, "learn", str(model), january)
    assert (code, "is being written by another process" in err) == (2, True)


def test_a_link_to_a_model_stays_a_link(months: Path, tmp_path: Path, capsys: Capture) -> None:
    quick = ["--set", "epochs=1", "--set", "width=4", "--device", "cpu"]
    call(capsys, "learn", str(tmp_path / "model"), str(months / "january"), *quick)
    (tmp_path / "link").symlink_to(tmp_path / "model")
    assert call(capsys, "learn", str(tmp_path / "link"), str(months / "february"), "--device", "cpu")[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert len(LifelongClassifier.load(tmp_path / "model", device="cpu").history_) == 2


def test_rows_are_not_images(tmp_path: Path, months: Path, capsys: Capture) -> None:
    LifelongClassifier(device="cpu").fit(X[:100], Y[:100]).save(tmp_path / "rows")
    code, _, err = call(capsys, "predict", str(tmp_path / "rows"), str(months / "test"))
    assert (code, "was trained on rows of features, not on images" in err) == (2, True)
    with pytest.raises(UsageError, match="there is no folder"):
        LifelongClassifier.load(tmp_path / "rows").save(tmp_path / "no" / "rows")


def test_a_stop_leaves_the_file_as_it_was(months: Path, tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "model"
    call(capsys, "learn", str(model), str(months / "january"), *QUICK)
    before = model.read_bytes()
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        command = [sys.executable, "-c", "from scommer.cli import main; main()", "learn", str(model)]
        process = subprocess.Popen(
            [*command, str(months / "february"), "--device", "cpu"], env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert "running" in process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(30) == code
        process.stdout.close()
        assert model.read_bytes() == before
    assert call(capsys, "learn", str(model), str(months / "february"), "--device", "cpu")[0] == 0
    assert not [path for path in tmp_path.iterdir() if path.name not in ("model", "model.lock")]


def test_one_warning_counts_the_files_that_are_converted(months: Path, tmp_path: Path, capsys: Capture) -> None:
    """A grey model makes colour files grey, a colour model grey ones colour; what is of its own kind is not counted."""
    grey, colour = tmp_path / "grey", tmp_path / "colour"
    for name in ("digit 0", "digit 1"):
        (colour / name).mkdir(parents=True)
        for path in sorted((months / "january" / name).iterdir())[:20]:
            Image.open(path).convert("RGB").save(colour / name / path.name)
    shutil.copytree(colour, grey)
    for i, path in enumerate(sorted(grey.rglob("*.png"))):
        if i >= 3:  # three stay in colour
            Image.open(path).convert("L").save(path)
    quick = ["--set", "epochs=1", "--set", "width=4", "--device", "cpu"]
    ignored = "in colour, but the model takes grey images: their colours are ignored"
    equal = "grey, but the model takes colour images: all their channels are equal"
    image = next(iter(sorted(colour.rglob("*.png"))))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for words, warning in (
            (["learn", "of-grey", months / "january", *quick], ""),
            (["learn", "of-grey", grey, "--device", "cpu"], f"3 of 40 images are {ignored}"),
            (["learn", "of-grey", colour, "--skip-broken", "--device", "cpu"], f"40 of 40 images are {ignored}"),
            (["predict", "of-grey", grey, "--device", "cpu"], f"3 of 40 images are {ignored}"),
            (["predict", "of-grey", image, "--device", "cpu"], f"1 of 1 images is {ignored}"),
            (["predict", "of-grey", months / "january", "--device", "cpu"], ""),
            (["learn", "of-colour", colour, *quick], ""),
            (["learn", "of-mixed", grey, *quick], f"37 of 40 images are {equal}"),
            (["learn", "of-colour", grey, "--device", "cpu"], f"37 of 40 images are {equal}"),
            (["predict", "of-colour", grey, "--device", "cpu"], f"37 of 40 images are {equal}"),
            (["predict", "of-colour", colour, "--device", "cpu"], ""),
        ):
            command, model, *rest = map(str, words)
            code, _, err = call(capsys, command, str(tmp_path / model), *rest)
            lines = [line for line in err.splitlines() if "hardly any" not in line]
            assert (code, lines) == (0, [f"scommer: warning: {warning}"] if warning else [])
