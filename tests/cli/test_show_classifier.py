"""`scommer show` of a classifier's file."""

import json
from pathlib import Path

import numpy as np
import pytest
from calling import call
from PIL import Image
from real_rows import DX, DY, X, Y

from scommer import LifelongClassifier

Capture = pytest.CaptureFixture[str]


def test_what_a_classifier_has_learned(tmp_path: Path, capsys: Capture) -> None:
    names = np.array(["cat", "dog", "guinea pig"])
    path, some = tmp_path / "model.safetensors", np.flatnonzero(DY < 3)[:90]
    model = LifelongClassifier(buffer=30, settings={"width": 4, "epochs": 1, "lr": 0.07}, device="cpu")
    for digits in ((0, 1), (2,)):
        part = some[np.isin(DY[some], digits)]
        model.partial_fit(DX[part], names[DY[part]])
    model.save(path)
    code, out, err = call(capsys, "show", str(path))
    assert (code, err) == (0, "")
    _, labels = model.remembered_
    assert "classes     " + ", ".join(f"{name} ({np.sum(labels == name)})" for name in names) in out
    assert "learns      1 × 8 × 8 images, float32" in out
    assert "2 tasks" in out
    assert "0.07" in out
    code, out, _ = call(capsys, "show", str(path), "--json")
    about = json.loads(out)
    assert about["classes"] == names.tolist()
    assert sum(about["remembered"].values()) == len(labels) == 30
    assert about["settings"] == {k: list(v) if isinstance(v, tuple) else v for k, v in model.settings_.items()}


def test_rows_and_other_files(tmp_path: Path, capsys: Capture) -> None:
    model = LifelongClassifier(device="cpu").fit(X[:200], Y[:200])
    model.save(tmp_path / "rows")
    code, out, _ = call(capsys, "show", str(tmp_path / "rows"))
    assert code == 0
    assert f"rows of {X.shape[1]} features" in out
    assert "slda" in out
    assert "remembered" not in out
    (tmp_path / "other").write_text("no classifier")
    code, _, err = call(capsys, "show", str(tmp_path / "other"))
    assert code == 2
    assert str(tmp_path / "other") in err


def test_files_that_are_not_there_or_not_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    code, _, err = call(capsys, "predict", str(tmp_path / "nowhere.safetensors"), str(tmp_path / "one.png"))
    assert (code, "there is no" in err, "give a classifier's file" in err) == (2, True, True)
    (tmp_path / "model.safetensors").write_bytes(b"")
    code, _, err = call(capsys, "show", str(tmp_path / "model.safetensors"), "--csv")
    assert (code, "--csv is for runs" in err) == (2, True)
