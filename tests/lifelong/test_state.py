"""Classifier files whose digest is valid and whose content is not: one clear error, never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from scommer import LifelongClassifier
from scommer.errors import UsageError
from scommer.lifelong.state import _digest

OLD = Path(__file__).parents[1] / "compatibility" / "files" / "classifier-scommer.safetensors"
Tensors = dict[str, Tensor]
About = dict[str, Any]


def rewritten(path: Path, change: Callable[[Tensors, About], object]) -> Path:
    """A file with changed content and the digest that belongs to it."""
    tensors = safetensors.torch.load_file(OLD)
    about = json.loads(tensors["about"].numpy().tobytes())
    change(tensors, about)
    if "about" in tensors:
        tensors["about"] = torch.from_numpy(np.frombuffer(json.dumps(about).encode(), np.uint8).copy())
    path.write_bytes(safetensors.torch.save(tensors, {"lifelong": _digest(tensors)}))
    return path


def without(key: str) -> Callable[[Tensors, About], object]:
    return lambda tensors, about: about.pop(key)


def given(key: str, value: object) -> Callable[[Tensors, About], object]:
    return lambda tensors, about: about.update({key: value})


def filled(name: str, value: float) -> Callable[[Tensors, About], object]:
    return lambda tensors, about: tensors[name].fill_(value)


def test_an_unchanged_file_is_loaded(tmp_path: Path) -> None:
    model = LifelongClassifier.load(rewritten(tmp_path / "model", lambda tensors, about: None), device="cpu")
    assert model.classes_.tolist() == list("abcd")


def test_a_setting_that_is_gone_is_ignored_if_it_did_nothing(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "none", lambda tensors, about: about["settings"].update(jitter=0.0, cutout=0))
    model = LifelongClassifier.load(path, device="cpu")
    assert model.classes_.tolist() == list("abcd")
    model.partial_fit(np.zeros((4, 8, 8), np.float32), list("abcd"))
    path = rewritten(tmp_path / "some", lambda tensors, about: about["settings"].update(jitter=0.2))
    with pytest.raises(UsageError, match="unknown setting of scommer 'jitter'"):
        LifelongClassifier.load(path, device="cpu")


@pytest.mark.parametrize(
    "change",
    [
        *map(without, ("init", "names", "settings", "form", "offered", "device", "history")),
        lambda tensors, about: tensors.pop("about"),
        lambda tensors, about: about["init"].pop("method"),
        lambda tensors, about: about["init"].update(classes=7.5),
        lambda tensors, about: about["init"].update(classes=["a", "b"]),
        lambda tensors, about: about["settings"].pop("network"),
        lambda tensors, about: about["settings"].update(network="none of ours"),
        lambda tensors, about: about["settings"].update(width="wide"),
        lambda tensors, about: about.update(form=["float32", [0, 8, 8]]),
        lambda tensors, about: about["history"][0].update(range=[0.5]),
        lambda tensors, about: tensors.pop("answer/head.weight"),
        lambda tensors, about: tensors.update({"answer/head.weight": torch.zeros(2, 2)}),
        *(
            given(key, value)
            for key in ("init", "names", "settings", "form", "history")
            for value in (None, 5, "x", [])
        ),
        given("offered", "many"),
        *(given("tasks", value) for value in (-1, 0, 1.5, "many")),
        *(given("seen", value) for value in (5, "a", ["z"], [["a"]])),
        filled("answer/head.weight", float("nan")),
        lambda tensors, about: tensors.update({"answer/head.bias": torch.zeros(4, dtype=torch.int16)}),
        filled("state/mind/working/theta", float("inf")),
        lambda tensors, about: tensors.update({k: t.cfloat() for k, t in tensors.items() if "/p_s" in k}),
    ],
)
def test_invalid_content_is_an_error(tmp_path: Path, change: Callable[[Tensors, About], object]) -> None:
    path = rewritten(tmp_path / "model", change)
    with pytest.raises(UsageError, match="invalid content"):
        LifelongClassifier.load(path, device="cpu")


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, about: tensors.pop("state/mind/episodic/x"),
        lambda tensors, about: tensors["state/mind/episodic/y"].fill_(-7),
        lambda tensors, about: tensors.update({"state/mind/code/p_s.1": torch.zeros(1)}),
        lambda tensors, about: tensors.update({"state/generator/order": torch.zeros(3, dtype=torch.uint8)}),
        lambda tensors, about: tensors.update({"state/mind/more": torch.zeros(3)}),
    ],
)
def test_a_state_that_does_not_fit_is_an_error_before_anything_is_learned(
    tmp_path: Path, change: Callable[[Tensors, About], object]
) -> None:
    model = LifelongClassifier.load(rewritten(tmp_path / "model", change), device="cpu")
    images = np.random.default_rng(0).random((8, 8, 8)).astype(np.float32)
    with pytest.raises(UsageError, match="does not fit its settings"):
        model.partial_fit(images, ["c"] * 8)
    assert len(model.history_) == 1


@pytest.mark.parametrize("labels", [[True, False], np.array([True, False])])
def test_true_is_not_the_class_1(labels: Any) -> None:
    model = LifelongClassifier(2, "er", buffer=5, settings={"epochs": 1}, device="cpu")
    with pytest.raises(UsageError, match="label True is not one of the 2 classes"):
        model.partial_fit(np.eye(2, 8, dtype=np.float32), labels)
    apart = LifelongClassifier(labels, "er", buffer=5, settings={"epochs": 1}, device="cpu")
    assert apart.partial_fit(np.eye(2, 8, dtype=np.float32), labels).classes_.tolist() == [False, True]
    with pytest.raises(UsageError, match="label 1 is not one of the 2 classes"):
        apart.partial_fit(np.eye(2, 8, dtype=np.float32), [1, 0])
