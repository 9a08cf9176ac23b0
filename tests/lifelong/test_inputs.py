"""Images, labels, parameters and files that a classifier accepts or refuses."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from quick import SETTINGS, tasks
from sklearn.datasets import load_digits

from scommer import LifelongClassifier, Stream
from scommer.errors import RunWarning, UsageError
from scommer.lifelong.labels import encode_labels, plain_labels


def test_learning_refuses_images_of_another_scale(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", settings={"epochs": 1}, device="cpu").partial_fit(
        images.float() / images.max(), labels
    )
    with pytest.raises(UsageError, match="in the same scale"):
        model.partial_fit(images.float() / images.max() * 255, labels)
    flat = np.zeros((4, 8, 8), np.float32)
    with pytest.raises(UsageError, match="give both in settings"):
        LifelongClassifier(10, "er", device="cpu").partial_fit(flat, [0] * 4)
    given = {"mean": [0.5], "std": [0.25], "epochs": 1}
    assert (
        LifelongClassifier(10, "er", settings=given, device="cpu").partial_fit(flat, [0] * 4).predict(flat).tolist()
        == [0] * 4
    )


def test_a_constant_channel_does_no_harm(stream: Stream) -> None:
    """As the alpha channel of photographs."""
    images, labels = tasks(stream)[0]
    opaque = torch.cat([images, images, images, torch.full_like(images, 255)], 1)
    model = LifelongClassifier(10, "er", settings={"epochs": 3}, device="cpu").partial_fit(opaque, labels)
    assert model.score(opaque, labels) > 0.9


def test_predicting_warns_of_images_of_another_scale(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    pixels = images.float().numpy() / 255
    model = LifelongClassifier(2, "er", buffer=10, settings=SETTINGS, device="cpu").partial_fit(pixels, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(pixels)
    with pytest.warns(RunWarning, match="standard deviations from those learned"):
        model.predict(255 * pixels)


def test_settings_follow_the_first_task_until_fit() -> None:
    rng = np.random.default_rng(0)
    bright = rng.integers(150, 255, (40, 8, 8), dtype=np.uint8)
    model = LifelongClassifier(2, settings={"epochs": 2, "width": 8}, device="cpu")
    model.partial_fit(bright, [0] * 40)
    first = model.settings_
    assert first["mean"] == [pytest.approx(bright.mean() / 255, abs=1e-3)]
    model.partial_fit(bright // 4, [1] * 40)
    assert model.settings_ == first
    model.fit(bright // 4, [1] * 40)  # starts over
    assert model.settings_["mean"] == [pytest.approx((bright // 4).mean() / 255, abs=1e-3)]
    assert len(model.history_) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"classes": 1}, "at least 2"),
        ({"classes": ["a", "a"]}, "2 classes were given, 1 of them distinct"),
        ({"classes": ["a", "a\0"]}, "final zero byte"),
        ({"classes": "abc"}, "a list of integers or a list of strings"),
        ({"classes": [0.5, 1.5]}, "a list of integers or a list of strings"),
        ({"classes": [0, "a"]}, "a list of integers or a list of strings"),
        ({"classes": [[1], [2, 3]]}, "a list of integers or a list of strings"),
        ({"variant": "none"}, "unknown variant 'none'"),
        ({"settings": {1: 2}}, "unknown setting of scommer '1'"),
        ({"device": 1.5}, "cannot be used here"),
        ({"method": "scomer"}, "did you mean 'scommer'"),
        ({"method": "joint"}, "all tasks at once"),
        ({"buffer": 0}, "holds nothing to replay"),
        ({"buffer": 1.5}, "whole number"),
        ({"settings": {"lrr": 1}}, "did you mean 'lr'"),
        ({"settings": [1]}, "give a dictionary"),
        ({"device": "gpu7"}, "cannot be used here"),
    ],
)
def test_the_constructor_refuses_invalid_parameters(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LifelongClassifier(**{"classes": 10, "device": "cpu", **wrong})


def test_images_and_labels_must_match_what_was_learned(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu")
    for early in (lambda: model.predict(images), lambda: model.save("never")):
        with pytest.raises(UsageError, match="has not learned anything yet"):
            early()
    assert not Path("never").exists()
    model.partial_fit(images, labels)
    with pytest.raises(UsageError, match="8 × 9"):
        model.predict(np.zeros((2, 8, 9), np.float32))
    other = np.zeros((2, 8, 8), np.uint8 if images.is_floating_point() else np.float32)
    with pytest.raises(UsageError, match=f"these are images of {other.dtype} 1 × 8 × 8"):
        model.partial_fit(other, [0, 1])
    with pytest.raises(UsageError, match="label 10 is not one of the 10 classes"):
        model.partial_fit(images[:2], [3, 10])
    for labels_given, message in (
        ([3], "expected 2 labels, one per input; got 1"),
        (3, "got a value of type int"),
        ("ab", "got a value of type str"),
        ([3, None], "label None"),
        (["0", "1"], "label '0'"),
    ):
        with pytest.raises(UsageError, match=message):
            model.partial_fit(images[:2], labels_given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="layout is 'bogus'"):
        model.predict(images, layout="bogus")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="empty"):
        model.partial_fit(images[:0], [])
    for wrong, message in (
        ([[3, 1], [3, 1]], "1d array"),
        (torch.tensor([0.5, 1.0], requires_grad=True), "continuous"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(images[:2], wrong)  # type: ignore[arg-type]
    assert len(model.history_) == 1


def test_damaged_and_other_files_are_refused(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        LifelongClassifier.load(tmp_path / "nowhere", device="cpu")
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"not a model")
    with pytest.raises(UsageError, match="damaged or not a classifier"):
        LifelongClassifier.load(path, device="cpu")
    safetensors.torch.save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(UsageError, match="not a classifier"):
        LifelongClassifier.load(path, device="cpu")
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu").partial_fit(*tasks(stream)[0])
    model.save(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    content = path.read_bytes()
    for at in range(-1, -len(content) + 3000, -len(content) // 7):  # anywhere in the tensors
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[len(content) + at + 1 :])
        with pytest.raises(UsageError, match="damaged"):
            LifelongClassifier.load(path, device="cpu")
    path.write_bytes(content[:-5])
    with pytest.raises(UsageError, match="damaged"):
        LifelongClassifier.load(path, device="cpu")
    with pytest.raises(UsageError, match="there is no folder"):
        model.save(tmp_path / "nowhere" / "model")


def test_vectors_are_learned_by_an_mlp() -> None:
    """As images of one row; compared with a nearest-mean classifier of all classes, which forgets nothing."""
    vectors, labels = load_digits(return_X_y=True)
    vectors = (vectors / 16).astype(np.float32)
    train, test = np.arange(len(labels)) % 5 > 0, np.arange(len(labels)) % 5 == 0
    model, rows = (LifelongClassifier(10, "scommer", 50, settings={"epochs": 10}, device="cpu") for _ in range(2))
    for first in range(0, 10, 2):
        now = train & np.isin(labels, (first, first + 1))
        model.partial_fit(vectors[now], labels[now])
        rows.partial_fit(vectors[now][:, None, None, :], labels[now], layout="NCHW")
    assert model.settings_["network"] == "mlp"
    assert np.array_equal(
        model.predict_proba(vectors[test]), rows.predict_proba(vectors[test][:, None, None, :], layout="NCHW")
    )
    means = np.stack([vectors[train & (labels == c)].mean(0) for c in range(10)])
    nearest = ((vectors[test][:, None] - means) ** 2).sum(2).argmin(1)
    assert model.score(vectors[test], labels[test]) > np.mean(nearest == labels[test]) - 0.05


def test_labels_are_not_rounded() -> None:
    """These two integers are the same number in float32."""
    classes = [2**24, 2**24 + 1]
    for kind in (torch.float64, torch.int64):
        found = encode_labels(plain_labels(torch.tensor(classes, dtype=kind), 2), classes)
        assert found.tolist() == [0, 1]
    half = torch.tensor([1.0, 0.0], dtype=torch.bfloat16, requires_grad=True)  # a dtype that NumPy lacks
    assert encode_labels(plain_labels(half, 2), [0, 1]).tolist() == [1, 0]
