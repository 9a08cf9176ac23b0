"""Forgetting on request: nothing of what is forgotten stays in the classifier or in its file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from real_rows import DX, DXT, DY, DYT, XT, YT, X, Y
from safetensors.torch import load_file

from scommer import LifelongClassifier
from scommer.errors import UsageError
from scommer.lifelong.widening import fresh_memories
from scommer.methods import METHODS
from scommer.nn.weights import views

BY_TASK = [name for name, method in METHODS.items() if not method.joint]
REPLAYING = [name for name in BY_TASK if METHODS[name].draws]


def learned(method: str | None, **params: Any) -> LifelongClassifier:
    settings = {} if method in (None, "slda", "ncm") else {"epochs": 2, "width": 16}
    model = LifelongClassifier(method=method, settings=settings, device="cpu", **params)
    for classes in ([0, 1, 2], [3, 4]):
        which = np.flatnonzero(np.isin(Y, classes))[:400]
        model.partial_fit(X[which], Y[which])
    return model


def holds(path: Path, rows: Any) -> np.ndarray:
    """Which rows are in a file, as any part of any tensor of it, or of its bytes."""
    content = path.read_bytes()
    return np.array([row.astype(np.float32).tobytes() in content for row in rows])


@pytest.mark.parametrize("method", REPLAYING)
def test_a_file_holds_the_remembered_rows_and_none_that_were_forgotten(method: str, tmp_path: Path) -> None:
    model, path = learned(method, buffer=50), tmp_path / "model.safetensors"
    x, y = model.remembered_
    assert len(x) == len(y) == 50
    model.save(path)
    assert holds(path, x).all()  # so that this test can fail
    model.forget(classes=[1])
    model.save(path)
    kept, labels = model.remembered_
    assert np.array_equal(holds(path, x), y != 1)
    assert np.array_equal(kept, x[y != 1])
    assert np.array_equal(labels, y[y != 1])


@pytest.mark.parametrize("method", REPLAYING)
def test_single_rows_are_forgotten(method: str, tmp_path: Path) -> None:
    model, path = learned(method, buffer=50), tmp_path / "model.safetensors"
    x, y = model.remembered_
    gone = np.random.default_rng(0).random(50) < 0.3
    before = model.predict_proba(XT)
    model.forget(where=gone)
    model.save(path)
    assert np.array_equal(holds(path, x), ~gone)
    assert np.array_equal(model.remembered_[1], y[~gone])
    assert np.array_equal(model.predict_proba(XT), before)  # what was learned from them stays
    again = LifelongClassifier.load(path, device="cpu")
    assert np.array_equal(again.remembered_[0], x[~gone])
    again.partial_fit(X[:200], Y[:200])  # their slots are free
    assert len(again.remembered_[0]) == 50


def test_all_copies_of_an_input_are_forgotten(tmp_path: Path) -> None:
    """Of a few inputs, offered in every epoch, memory holds some several times."""
    model, path = LifelongClassifier(buffer=60, settings={"width": 8}, device="cpu"), tmp_path / "model.safetensors"
    model.partial_fit(DX[:20], DY[:20])
    x, _ = model.remembered_
    same = (x == x[0]).all((1, 2, 3))
    assert same.sum() > 1
    model.forget(where=np.arange(len(x)) == 0)
    assert np.array_equal(model.remembered_[0], x[~same])
    model.save(path)
    assert np.array_equal(holds(path, x), ~same)


@pytest.mark.parametrize("method", BY_TASK)
def test_a_forgotten_class_is_not_predicted_until_it_is_learned_again(method: str, tmp_path: Path) -> None:
    model = learned(method)
    known = np.isin(YT, [0, 2, 3, 4])
    before = model.predict_proba(XT)
    model.forget(classes=[1])
    p = model.predict_proba(XT)
    assert not p[:, 1].any()
    rest = before[:, [0, 2, 3, 4]]
    np.testing.assert_allclose(p[:, [0, 2, 3, 4]], rest / rest.sum(1, keepdims=True), atol=1e-3)  # as they were
    model.save(tmp_path / "model.safetensors")
    loaded = LifelongClassifier.load(tmp_path / "model.safetensors", device="cpu")
    assert np.array_equal(loaded.predict_proba(XT), p)
    assert not any(1 in task["classes"] for task in loaded.history_)
    which = np.flatnonzero(np.isin(Y, [1, 5]))[:300]
    loaded.partial_fit(X[which], Y[which])
    assert loaded.predict_proba(XT)[:, 1].any()
    if method == "slda":
        assert loaded.score(XT[YT == 1], YT[YT == 1]) > 0.5
        assert loaded.score(XT[known], YT[known]) > 0.5


def test_means_and_counts_of_a_forgotten_class_are_gone(tmp_path: Path) -> None:
    """SLDA keeps a mean for each class, and one covariance of all, in which single classes cannot be told apart."""
    model = learned("slda")
    first = np.flatnonzero(Y < 3)[:400]
    standardised = (X[first] - model.settings_["mean"]) / model.settings_["std"]
    mean = standardised[Y[first] == 1].mean(0)
    for forgotten in (False, True):
        if forgotten:
            model.forget(classes=[1])
        model.save(tmp_path / "model.safetensors")
        tensors = load_file(tmp_path / "model.safetensors")
        rows = torch.cat([t.reshape(-1, 256).double() for t in tensors.values() if t.numel() % 256 == 0])
        nearest = (rows - torch.from_numpy(mean)).abs().amax(1).min()
        assert (nearest < 1e-3) == (not forgotten)


def test_images_are_forgotten_too(tmp_path: Path) -> None:
    model = LifelongClassifier(settings={"epochs": 2, "width": 8}, buffer=40, device="cpu")
    model.partial_fit(DX[:400], DY[:400])
    x, y = model.remembered_
    assert x.shape == (40, 1, 8, 8)
    model.forget(classes=[3, 4])
    model.save(tmp_path / "model.safetensors")
    assert np.array_equal(holds(tmp_path / "model.safetensors", x), ~np.isin(y, [3, 4]))
    assert not np.isin(model.predict(DXT), [3, 4]).any()
    assert model.score(DXT[DYT < 3], DYT[DYT < 3]) > 0


@pytest.mark.parametrize("method", ["slda", "ncm"])
def test_the_covariance_stays_when_a_large_class_is_forgotten(method: str) -> None:
    r = np.random.default_rng(0)
    a, b, c = r.normal(size=(10_000, 5)), r.normal(size=(100, 5)) + 1.5, r.normal(size=(100, 5)) - 1.5
    model = LifelongClassifier(method=method, device="cpu")
    model.fit(np.concatenate([a, b, c]), np.repeat([0, 1, 2], [10_000, 100, 100])).forget(classes=[0])
    before = model.predict_proba(0.15 * b)[:, 1].mean()
    assert before > 0.9
    model.partial_fit(b[:1], [1])
    assert model.predict_proba(0.15 * b)[:, 1].mean() == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize("method", ["er", "scommer"])
def test_the_last_layer_starts_from_other_numbers(method: str) -> None:
    """Those of its own start are what the other layers were trained towards: they would give the class away."""
    model = learned(method)
    state = model.forget(classes=[1])._learned_state()
    row = state.weights["head.weight"][1]
    again = learned(method).forget(classes=[1])._learned_state().weights["head.weight"][1]
    assert torch.equal(row, again)  # repeatable
    initial = fresh_memories(state, state.params, 5).working.network.head.weight[1]
    cosine = torch.nn.functional.cosine_similarity(row, initial.detach(), dim=0)
    assert abs(float(cosine)) < 0.6


@pytest.mark.parametrize("turned", [0.0, 0.3])
def test_in_every_vector_of_weights_the_forgotten_rows_change_and_nothing_else(turned: float) -> None:
    quick = {"epochs": 1, "width": 4, "turned": turned}
    model = LifelongClassifier(settings=quick, buffer=40, device="cpu").partial_fit(DX[:200], DY[:200])
    before = model._learned_state()
    network = fresh_memories(before, before.params, 10).working.network
    after = model.forget(classes=[3, 7])._learned_state()
    kept = np.isin(np.arange(10), [3, 7], invert=True)
    layers, shapes = zip(*((name, p.shape) for name, p in network.named_parameters()), strict=True)
    assert ("head.turned.weight" in layers) == (turned > 0)
    for memory in ("working", "long_term"):
        was, now = (
            views(state.tensors[f"memories/{memory}/theta"], map(torch.empty, shapes)) for state in (before, after)
        )
        for layer, a, b in zip(layers, was, now, strict=True):
            if not layer.startswith("head."):
                assert torch.equal(a, b), layer
                continue
            same = (a == b).movedim(1 if "turned" in layer else 0, -1)  # the axis of classes comes last
            assert same[..., kept].all(), layer
            assert not same[..., ~kept].any(), layer


def test_forgetting_every_class_is_a_new_beginning(tmp_path: Path) -> None:
    for method in ("slda", "er"):
        model = learned(method).forget(classes=[0, 1, 2, 3, 4])
        for call, given in ((model.predict, XT), (model.export, tmp_path / "x"), (model.save, tmp_path / "x")):
            with pytest.raises(UsageError, match="has not learned anything yet"):
                call(given)
        fresh = LifelongClassifier(method=method, settings=model.settings, device="cpu")
        for each in (model, fresh):
            each.partial_fit(X[:300], Y[:300])
        assert np.array_equal(model.predict_proba(XT), fresh.predict_proba(XT))


@pytest.mark.parametrize("given", [np.array([1]), [np.int64(1)], 1, (1,), np.int64(1)])
def test_classes_may_be_given_in_any_form(given: Any) -> None:
    assert not learned("ncm").forget(classes=given).predict_proba(XT)[:, 1].any()


def test_names_of_classes() -> None:
    names = np.array(["cat", "dog", "owl"])
    model = LifelongClassifier(device="cpu").fit(X[Y < 3], names[Y[Y < 3]])
    model.forget(classes="owl")
    assert set(model.predict(XT)) == {"cat", "dog"}
    model.forget(classes=model.classes_[:1])
    assert set(model.predict(XT)) == {"dog"}


def test_what_cannot_be_forgotten_is_refused_and_changes_nothing() -> None:
    model = learned("er", buffer=50)
    before, (x, _) = model.predict_proba(XT), model.remembered_
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "takes `classes` or `where`"),
        ({"classes": [1], "where": [True] * 50}, "takes `classes` or `where`"),
        ({"classes": [11]}, "label 11 is not one of the 5 classes"),
        ({"where": [True] * 49}, "give a mask of 50 booleans, one per remembered input"),
        ({"where": [0, 1, 2]}, "give a mask of 50 booleans"),
    ]
    for given, message in wrong:
        with pytest.raises(UsageError, match=message):
            model.forget(**given)
    assert np.array_equal(model.remembered_[0], x)
    assert np.array_equal(model.predict_proba(XT), before)
    with pytest.raises(UsageError, match="has not learned anything yet"):
        LifelongClassifier(device="cpu").forget(classes=[1])
    x[:] = 0  # a copy
    assert model.remembered_[0].any()
