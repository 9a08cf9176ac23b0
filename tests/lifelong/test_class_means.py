"""NCM and SLDA as classifiers, against scikit-learn's NearestCentroid and LinearDiscriminantAnalysis."""

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.covariance import oas
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from scommer import LifelongClassifier
from scommer.errors import UsageError
from scommer.methods import METHODS, MemoryFactory
from scommer.methods.training import Training

Rows = NDArray[Any]
X, Y = load_digits(return_X_y=True)  # three of the 64 pixels never change, more within the early classes
X = X.astype(np.float32)
TRAIN, TEST = np.arange(len(Y)) % 4 > 0, np.arange(len(Y)) % 4 == 0
BY_CLASS = [TRAIN & (t == Y // 2) for t in range(5)]  # five tasks of two digits
BOTH = pytest.mark.parametrize("method", ["ncm", "slda"])


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Each `partial_fit` collects garbage, which takes long if it looks at all that the other tests have imported."""
    gc.freeze()
    yield
    gc.unfreeze()


def learned(method: str, parts: Iterable[NDArray[Any]], x: Rows = X, y: Rows = Y, **settings: Any) -> Any:
    model = LifelongClassifier(10, method, settings=settings, device="cpu")
    for part in parts:
        model.partial_fit(x[part], y[part])
    return model


def logits(model: LifelongClassifier, x: Rows) -> Rows:
    """Raw answers for every class, seen or not."""
    return np.asarray(model._learned_state().network.respond(torch.from_numpy(x)[:, None, None]).double())


def deviations(x: Rows, y: Rows) -> Rows:
    return np.concatenate([x[y == c] - x[y == c].mean(0) for c in np.unique(y)])


def within_deviation(x: Rows, y: Rows) -> Rows:
    """The standard deviation of each feature within classes; 1 if it is constant there."""
    std = deviations(x, y).std(0)
    return np.where(std > 0, std, 1.0)


def discriminants(x: Rows, y: Rows, test: Rows, shrinkage: float) -> Rows:
    """scikit-learn's answers on standardised features, as for equally likely classes."""
    std = within_deviation(x, y)
    found = deviations(x, y) / std
    covariance = found.T @ found / len(found)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / len(std) * np.eye(len(std))
    shrunk = np.eye(len(std)) if shrinkage == 1 else shrunk  # the nearest mean
    lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=Fixed(shrunk)).fit(x / std, y)
    return np.asarray(lda.decision_function(test / std) - np.log(lda.priors_))


class Fixed:
    """An estimator of one covariance for all classes, as scikit-learn wants it."""

    def __init__(self, covariance: Rows) -> None:
        self.covariance_ = covariance

    def fit(self, x: Rows) -> "Fixed":
        return self


def assert_alike(found: Rows, expected: Rows, rtol: float = 1e-4) -> None:
    """Logits are equal up to a term that all classes share."""
    found, expected = (z - z.mean(1, keepdims=True) for z in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("parts", [[TRAIN], BY_CLASS], ids=["at once", "by class"])
@pytest.mark.parametrize("shrinkage", [1e-4, 0.2])
def test_slda_is_linear_discriminant_analysis(parts: list[Rows], shrinkage: float) -> None:
    model = learned("slda", parts, shrinkage=shrinkage)
    expected = discriminants(X[TRAIN].astype(float), Y[TRAIN], X[TEST].astype(float), shrinkage)
    assert_alike(logits(model, X[TEST]), expected, 1e-3 if shrinkage < 0.01 else 1e-4)
    assert np.array_equal(model.predict(X[TEST]), expected.argmax(1))
    p = np.exp(expected - expected.max(1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X[TEST]), p / p.sum(1, keepdims=True), atol=1e-3)


@pytest.mark.parametrize("part", [TRAIN, TRAIN & (np.arange(len(Y)) < 80)], ids=["many rows", "few rows"])
def test_the_default_shrinkage_is_oas_of_deviations_from_class_means(part: Rows) -> None:
    x, y = X[part].astype(float), Y[part]
    standardised = deviations(x, y) / within_deviation(x, y)
    expected = discriminants(x, y, X[TEST].astype(float), oas(standardised, assume_centered=True)[1])
    assert_alike(logits(learned("slda", [part]), X[TEST]), expected)


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_ has at least 1 zero")
@pytest.mark.parametrize("parts", [[TRAIN], BY_CLASS], ids=["at once", "by class"])
def test_ncm_is_the_nearest_centroid(parts: list[Rows]) -> None:
    model = learned("ncm", parts)
    x, y = X[TRAIN].astype(float), Y[TRAIN]
    std = within_deviation(x, y)
    assert np.array_equal(model.predict(X[TEST]), NearestCentroid().fit(x / std, y).predict(X[TEST] / std))
    assert_alike(logits(model, X[TEST]), discriminants(x, y, X[TEST].astype(float), 1.0))


@BOTH
def test_order_and_portions_do_not_matter(method: str) -> None:
    rng, whole = np.random.default_rng(0), logits(learned(method, [TRAIN]), X[TEST])
    shuffled = rng.permutation(np.flatnonzero(TRAIN))
    for parts in (BY_CLASS[::-1], np.array_split(shuffled, 3), np.split(shuffled, [5, 700])):
        assert_alike(logits(learned(method, parts), X[TEST]), whole)


@BOTH
def test_a_row_at_a_time(method: str) -> None:
    rows = np.arange(40)
    assert set(Y[rows]) == set(range(10))
    single = learned(method, rows[:, None])
    assert_alike(logits(single, X[TEST]), logits(learned(method, [rows]), X[TEST]))
    assert len(single.history_) == 40


def gaussian(mean: Rows, mixing: Rows, n: int, seed: int) -> Rows:
    return (mean + np.random.default_rng(seed).standard_normal((n, len(mean))) @ mixing.T).astype(np.float32)


@BOTH
def test_a_small_class_that_comes_late_is_recognised(method: str) -> None:
    """Almost as often as by the classifier that knows the true distributions, or for NCM, the true means."""
    rng = np.random.default_rng(1)
    means, mixing = 1.5 * rng.standard_normal((9, 32)), np.eye(32) + 0.3 * rng.standard_normal((32, 32))
    sizes = [500] * 8 + [100]
    x = np.concatenate([gaussian(m, mixing, n, c) for c, (m, n) in enumerate(zip(means, sizes, strict=True))])
    y = np.repeat(np.arange(9), sizes)
    test = np.concatenate([gaussian(m, mixing, 300, 100 + c) for c, m in enumerate(means)])
    precision = np.linalg.inv(mixing @ mixing.T) if method == "slda" else np.eye(32)
    best = (test @ precision @ means.T - ((means @ precision) * means).sum(1) / 2).argmax(1).reshape(9, 300)
    model = learned(method, [y < 8, y == 8], x, y)
    found = model.predict(test).reshape(9, 300)
    wanted, recall = (np.mean(a == np.arange(9)[:, None], 1) for a in (best, found))
    assert wanted[8] > 0.8
    assert recall[8] > wanted[8] - 0.05
    assert recall[:8].mean() > wanted[:8].mean() - 0.03


@BOTH
@pytest.mark.parametrize("width", [4, 6, 64])
def test_classes_are_added_also_where_their_number_is_that_of_the_features(method: str, width: int) -> None:
    """From 4 to 6 classes: with 4 or 6 features, both axes of a tensor could be classes."""
    x, rng = X[:, 16 : 16 + width] if width < 64 else X, np.random.default_rng(0)
    first, later = TRAIN & (Y < 4), TRAIN & (Y < 6)
    mixed = rng.permutation(np.flatnonzero(later))
    grown = LifelongClassifier(4, method, device="cpu").partial_fit(x[first], Y[first])
    before = grown.predict_proba(x[TEST])
    grown.add_classes(2)
    assert np.array_equal(grown.predict_proba(x[TEST])[:, :4], before)
    assert logits(grown, x[TEST]).argmax(1).max() < 4  # no new class wins before it occurs
    wide = LifelongClassifier(6, method, device="cpu").partial_fit(x[first], Y[first])
    for model in (grown, wide):
        model.partial_fit(x[mixed], Y[mixed])
    assert np.array_equal(logits(grown, x[TEST]), logits(wide, x[TEST]))
    assert len(set(grown.predict(x[TEST]))) == 6


@BOTH
def test_what_is_saved_predicts_and_goes_on_learning(method: str, tmp_path: Path) -> None:
    model = learned(method, BY_CLASS[:3])
    model.save(tmp_path / "model")
    again = LifelongClassifier.load(tmp_path / "model", device="cpu")
    for one in (model, again):
        one.partial_fit(X[BY_CLASS[3]], Y[BY_CLASS[3]])
    assert np.array_equal(logits(again, X), logits(model, X))
    assert_alike(logits(again, X)[:, :8], logits(learned(method, [TRAIN & (Y < 8)]), X)[:, :8])


@BOTH
def test_no_class_wins_before_it_occurs_not_even_far_away(method: str) -> None:
    far = np.concatenate([X[TEST], 1e3 * np.random.default_rng(0).standard_normal((500, 64))]).astype(np.float32)
    for tasks in (1, 2, 4):
        z = logits(learned(method, BY_CLASS[:tasks]), far)
        assert np.isfinite(z).all()
        assert z.argmax(1).max() < 2 * tasks


@BOTH
def test_features_that_hardly_vary_within_classes(method: str) -> None:
    """Two classes of copies of one row each: no variance, or one far too small for the distance between them."""
    for noise in (0.0, 1e-5):
        x = np.repeat([[0.0, 1.0, 7.0], [2.0, 1.0, 7.0]], 20, axis=0) + noise * X[:40, 2:5]
        x, y = x.astype(np.float32), np.repeat([0, 1], 20)
        model = learned(method, [y == 0, y == 1], x, y)
        assert np.array_equal(model.predict(np.float32([[0.9, 1, 7], [1.1, 1, 7], [5, 1, 7]])), [0, 1, 1])


@BOTH
def test_other_networks_give_features_and_keep_their_weights(method: str) -> None:
    """The head is that of scikit-learn on ReLU units of random weights, which SGD would start from."""
    given = {"network": "mlp", "width": 40, "stages": 1, "mean": [5.0], "std": [6.0]}
    model = learned(method, BY_CLASS, **given, **({"shrinkage": 0.1} if method == "slda" else {}))
    training = Training(network="mlp", width=40, stages=1)
    start = MemoryFactory(torch.zeros(1, 1, 64), 10, training).memories(METHODS["sgd"]()).working.network.state_dict()
    w, b = (start[f"layers.0.{name}"].double().numpy() for name in ("weight", "bias"))
    features = np.maximum((X - 5) / 6 @ w.T + b, 0)
    expected = discriminants(features[TRAIN], Y[TRAIN], features[TEST], 0.1 if method == "slda" else 1.0)
    assert_alike(logits(model, X[TEST]), expected)
    assert torch.equal(model._learned_state().weights["layers.0.weight"], start["layers.0.weight"])


def test_what_slda_cannot_do_is_refused() -> None:
    for wrong in (0.0, 1.1, -1.0):
        with pytest.raises(UsageError, match="shrinkage = "):
            LifelongClassifier(10, "slda", settings={"shrinkage": wrong})
    wide = np.random.default_rng(0).random((4, 20_000), np.float32)
    with pytest.raises(UsageError, match="covariance of 20000 features"):
        LifelongClassifier(2, "slda", device="cpu").partial_fit(wide, [0, 1, 0, 1])
    assert LifelongClassifier(2, "ncm", device="cpu").partial_fit(wide, [0, 1, 0, 1]).score(wide, [0, 1, 0, 1]) == 1
    with pytest.raises(UsageError, match="linear has no hidden units to be sparse"):
        LifelongClassifier(2, "scommer", settings={"network": "linear"}, device="cpu").partial_fit(wide, [0, 1, 0, 1])
