"""Added classes: what was learned stays, and new entries of state follow the rule of `lifelong/widening.py`."""

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quick import METHODS_BY_TASK, SETTINGS, settings, tasks
from sklearn.datasets import load_digits

from scommer import LifelongClassifier, Stream
from scommer.errors import UsageError
from scommer.methods import METHODS

CLASS_STATE = {
    f"memories/state/{name}" for name in ("seen", "old", "count", "mean", "current", "earlier")
}  # a row for each class
CLASS_AXES = {"head.weight": 0, "head.bias": 0, "head.turned.weight": 1, "head.turned.bias": 1}  # the last layer


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        *((method, {}) for method in METHODS_BY_TASK),
        ("scommer", {"network": "mlp"}),
        ("scommer", {"turned": 0.3}),
        ("der++", {"momentum": 0.9}),
    ],
)
def test_adding_classes_keeps_what_was_learned(
    method: str, extra: dict[str, Any], stream: Stream, tmp_path: Path
) -> None:
    """Compare every tensor with the one before, weights by their position in the head."""
    (images, labels), (next_images, next_labels), *_ = tasks(stream)
    model = LifelongClassifier(3, method, buffer=30, settings=settings(method) | extra, device="cpu")
    model.partial_fit(images, labels)
    before, p_before = model._learned_state(), model.predict_proba(images)
    logits = before.network.respond(images)
    assert model.add_classes(2) is model
    after = model._learned_state()
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert torch.allclose(after.network.respond(images)[:, :3], logits, atol=1e-5)
    p = model.predict_proba(images)
    assert np.allclose(p[:, :3], p_before, atol=1e-5)
    assert not p[:, 3:].any()
    for name, t in before.tensors.items():
        now = after.tensors[name]
        if name.endswith(("theta", "velocity", "fisher", "anchor")):
            axes = {layer: axis for layer, axis in CLASS_AXES.items() if layer in before.weights}
            shapes, wider = ([state.weights[layer].shape for layer in axes] for state in (before, after))
            body, *old = t.split([len(t) - sum(map(prod, shapes)), *map(prod, shapes)])
            its_body, *new = now.split([len(body), *map(prod, wider)])
            assert torch.equal(its_body, body)
            fresh = name.endswith(("theta", "anchor")) and METHODS[method].descends
            for (layer, axis), was, shape, made, wide in zip(axes.items(), old, shapes, new, wider, strict=True):
                kept, further = made.view(wide).split([3, 2], axis)
                assert torch.equal(kept, was.view(shape))
                assert not layer.endswith("weight") or further.any() == fresh
        elif "/a_s" in name or "/p_s" in name or name in CLASS_STATE:
            assert torch.equal(now[:3], t)
            assert now.shape[0] == 5
            assert not now[3:].any()
        elif name == "memories/episodic/logits":
            assert torch.equal(now[:, :3], t)
            assert torch.equal(now[:, 3:], t.min(1).values[:, None].expand(-1, 2))
        else:
            assert torch.equal(now, t), name
    model.save(tmp_path / "model")
    again = LifelongClassifier.load(tmp_path / "model", device="cpu")
    for one in (model, again):
        one.partial_fit(next_images, next_labels)
    assert np.array_equal(model.predict_proba(next_images), again.predict_proba(next_images))
    assert model.history_[-1]["classes"] == [2, 3]


def test_added_classes_are_learned_and_earlier_ones_remembered() -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    names = np.array([f"digit {c}" for c in range(10)])
    train, test = np.arange(len(labels)) % 5 > 0, np.arange(len(labels)) % 5 == 0
    model = LifelongClassifier(names[:2].tolist(), buffer=50, settings={"epochs": 8}, device="cpu")
    for first in range(0, 10, 2):
        if first:
            model.add_classes(names[first : first + 2])
        now = train & np.isin(labels, (first, first + 1))
        model.partial_fit(images[now], names[labels[now]])
    assert model.classes_.tolist() == names.tolist() == model.get_params()["classes"]
    early, late = test & (labels < 8), test & (labels >= 8)
    assert model.score(images[early], names[labels[early]]) > 0.7
    assert model.score(images[late], names[labels[late]]) > 0.5


def test_classes_may_be_added_before_the_first_task(stream: Stream) -> None:
    images, labels = tasks(stream)[1]
    grown = LifelongClassifier(2, "er", buffer=10, settings=SETTINGS, device="cpu").add_classes([2, 3])
    named = LifelongClassifier([0, 1, 2, 3], "er", buffer=10, settings=SETTINGS, device="cpu")
    for model in (grown, named):
        model.partial_fit(images, labels)
    assert np.array_equal(grown.predict_proba(images), named.predict_proba(images))


@pytest.mark.parametrize(
    ("classes", "new", "message"),
    [
        (3, 0, "cannot add 0 classes"),
        (3, [2], "2 is already one of the 3 classes"),
        (3, ["a"], "invalid classes"),
        (["a", "b"], 1, "give the labels of the new ones in a list"),
        (["a", "b"], "owl", "give a list of their labels"),
        (["a", "b"], [], "give a list of their labels"),
        (["a", "b"], ["c", "c"], "4 classes were given, 3 of them distinct"),
    ],
)
def test_invalid_classes_are_refused(classes: Any, new: Any, message: str) -> None:
    model = LifelongClassifier(classes, "er", buffer=10, settings=SETTINGS, device="cpu")
    with pytest.raises(UsageError, match=message):
        model.add_classes(new)
    assert len(model.classes_) == (3 if classes == 3 else 2)


def test_classes_cannot_be_added_after_a_parameter_changed(stream: Stream) -> None:
    model = LifelongClassifier(3, "er", buffer=10, settings=SETTINGS, device="cpu").partial_fit(*tasks(stream)[0])
    model.set_params(seed=1)
    with pytest.raises(UsageError, match="seed changed since"):
        model.add_classes(1)
    assert len(model.classes_) == 3


def test_it_predicts_while_classes_are_added(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(2, "er", buffer=10, settings=SETTINGS, device="cpu").partial_fit(images, labels)
    with ThreadPoolExecutor(1) as other:
        answers = other.submit(lambda: [model.predict(images[:8]).shape for _ in range(150)])
        while not answers.done():
            model.add_classes(1)
        assert set(answers.result()) == {(8,)}
    assert len(model.classes_) > 2
