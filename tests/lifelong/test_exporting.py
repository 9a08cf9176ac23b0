"""A classifier as ONNX, in onnxruntime: raw inputs in, the same probabilities out, for batches of any size."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from real_rows import DX, DXT, DY, XT, X, Y
from torch import nn

from scommer import LifelongClassifier
from scommer.errors import UsageError

NAMES = np.array(["nine", "eight", "seven", "six", "five", "four", "three", "two", "one", "zero"])  # not sorted
QUICK = {"width": 8, "epochs": 1}
Array = np.ndarray[Any, Any]


def in_runtime(model: bytes, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    found: Array = session.run(None, {given.name: x})[0]
    return found


def check_equal(model: LifelongClassifier, raw: Array, given: Any = None, **options: Any) -> None:
    """Raw inputs in the runtime, and `given` in Python, have the same probabilities."""
    exported = model.to_onnx(**options)
    for n in (1, 7):
        expected = model.predict_proba(raw[:n] if given is None else given[:n])
        np.testing.assert_allclose(in_runtime(exported, raw[:n]), expected, atol=1e-4)
    metadata = onnxruntime.InferenceSession(exported).get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == model.classes_.tolist()


@pytest.mark.parametrize("method", ["slda", "scommer"])
def test_rows(method: str) -> None:
    model = LifelongClassifier(method=method, settings={"epochs": 1} if method == "scommer" else None, device="cpu")
    for classes in ([0, 1], [5]):
        which = np.isin(Y, classes)
        model.partial_fit(X[which], NAMES[Y[which]], classes=NAMES)
    check_equal(model, XT)
    exported = model.to_onnx()
    assert not in_runtime(exported, XT)[:, ~np.isin(model.classes_, NAMES[[0, 1, 5]])].any()  # have not occurred


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("er", QUICK),
        ("scommer", QUICK | {"active": 0.5}),
        ("scommer", QUICK | {"turned": 0.3}),
        ("ncm", {"mirrored": True}),
    ],
)
def test_images(method: str, settings: dict[str, Any]) -> None:
    model = LifelongClassifier(method=method, settings=settings, device="cpu").fit(DX[:200], NAMES[DY[:200]])
    check_equal(model, DXT[:, None], DXT)


def test_bytes() -> None:
    images, tests = ((x * 255).astype(np.uint8) for x in (DX, DXT))
    model = LifelongClassifier(settings=QUICK, device="cpu").fit(images[:200], DY[:200])
    check_equal(model, tests[:, None], tests)


def test_colour_images_of_a_resnet() -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 20, 20, 3), dtype=np.uint8)
    settings = {"network": "resnet18", "width": 4, "epochs": 1, "min_steps": 0}
    model = LifelongClassifier(settings=settings, device="cpu").fit(images, np.arange(8) % 2)
    check_equal(model, images.transpose(0, 3, 1, 2).copy(), images)


def test_a_frozen_network_is_part_of_it() -> None:
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    images, tests = ((x * 255).astype(np.uint8) for x in (DX, DXT))
    model = LifelongClassifier(features=network, device="cpu").fit(images[:300], DY[:300])
    with pytest.raises(UsageError, match="give one of them as `example`"):
        model.to_onnx()
    check_equal(model, (tests[:, None] / 255).astype(np.float32), tests, example=images[0])
    assert network.training
    with pytest.warns(DeprecationWarning, match="deprecated"):
        script = torch.jit.trace(network.eval(), torch.rand(2, 1, 8, 8))
    other = LifelongClassifier(features=script, device="cpu").fit(images[:300], DY[:300])
    with pytest.raises(UsageError, match="cannot be written as ONNX"):
        other.to_onnx(example=images[0])


def test_it_is_written_to_a_file_and_nothing_else_changes(tmp_path: Path) -> None:
    model = LifelongClassifier(device="cpu").fit(X[:500], Y[:500])
    before = model.predict_proba(XT)
    model.export(tmp_path / "model.onnx")
    np.testing.assert_allclose(in_runtime((tmp_path / "model.onnx").read_bytes(), XT), before, atol=1e-4)
    assert np.array_equal(model.predict_proba(XT), before)
    model.partial_fit(X[500:600], Y[500:600])


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LifelongClassifier(device="cpu").fit(X[:500], Y[:500])
    monkeypatch.setattr("scommer.lifelong.exporting.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError, match=r"pip install 'scommer\[onnx\]'"):
        model.to_onnx()
