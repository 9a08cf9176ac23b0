"""A classifier is an estimator of scikit-learn: its own checks, and what people give to estimators."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from real_rows import XT, YT, X, Y
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from scommer import LifelongClassifier

EXPECTED = {
    "check_do_not_raise_errors_in_init_or_set_params": "invalid parameters are refused before any data is prepared",
}
ESTIMATORS = [LifelongClassifier(device="cpu"), LifelongClassifier(method="er", settings={"epochs": 2}, device="cpu")]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED)
def test_a_check_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_rows_may_have_any_form() -> None:
    """The same numbers give the same answers as arrays of any type, lists, objects, tables and tensors."""
    import torch

    rows = np.round(X[:200, :8]).astype(int)
    expected = LifelongClassifier(device="cpu").fit(rows.astype(np.float32), Y[:200]).predict_proba(rows)
    forms = [
        rows, rows.astype(np.float64), rows.tolist(), rows.astype(object), pd.DataFrame(rows), torch.from_numpy(rows),
    ]  # fmt: skip
    for given in forms:
        for labels in (Y[:200], Y[:200].tolist(), pd.Series(Y[:200]), torch.from_numpy(Y[:200])):
            model = LifelongClassifier(device="cpu").fit(given, labels)
            np.testing.assert_allclose(model.predict_proba(given), expected, atol=1e-5)
            assert model.n_features_in_ == 8


def test_columns_of_a_table_have_names() -> None:
    table = pd.DataFrame(X[:200, :3], columns=["red", "green", "blue"])
    model = LifelongClassifier(device="cpu").fit(table, Y[:200])
    assert model.feature_names_in_.tolist() == ["red", "green", "blue"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(table[["blue", "green", "red"]], Y[:200])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table.rename(columns={"red": "rouge"}))


def test_wrong_input_is_a_value_error_about_rows_and_features() -> None:
    model = LifelongClassifier(device="cpu").fit(X[:200], Y[:200])
    for call, message in (
        (lambda: model.predict(X[:5, :7]), "X has 7 features, but LifelongClassifier is expecting 256 features"),
        (lambda: model.predict(X[:5].reshape(5, 16, 16)), "expected rows of 256 features, as learned before"),
        (lambda: model.partial_fit(X[:5], Y[:4]), "expected 5 labels, one per input; got 4"),
        (lambda: model.partial_fit(X[:5], [0.5] * 5), "continuous"),
        (lambda: model.partial_fit(np.full((5, 256), np.nan), Y[:5]), "NaN"),
        (lambda: model.partial_fit(X[:0], Y[:0]), "minimum of 1 is required"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="smaller integers"):
        LifelongClassifier(device="cpu").fit(X[:20], [2**70] * 10 + [1] * 10)
    with pytest.raises(NotFittedError, match="call fit or partial_fit first"):
        LifelongClassifier(device="cpu").predict(X[:5])


def test_classes_are_added_as_they_appear_or_announced() -> None:
    appearing, announced = (LifelongClassifier(device="cpu") for _ in range(2))
    for classes in ([3, 7], [1], [0, 9]):
        which = np.isin(Y, classes)
        appearing.partial_fit(X[which], Y[which])
        announced.partial_fit(X[which], Y[which], classes=range(10))
    assert appearing.classes_.tolist() == [0, 1, 3, 7, 9]
    assert announced.classes_.tolist() == list(range(10))
    known = np.isin(YT, appearing.classes_)
    assert np.array_equal(appearing.predict(XT[known]), announced.predict(XT[known]))
    assert appearing.score(XT[known], YT[known]) > 0.5
    p = announced.predict_proba(XT)
    assert not p[:, [2, 4, 5, 6, 8]].any()  # they have not occurred
    with pytest.raises(ValueError, match="y contains 2, which is not one of `classes`"):
        announced.partial_fit(X[:20], np.full(20, 2), classes=[0, 1])
    with pytest.raises(ValueError, match="labels of one type"):
        appearing.partial_fit(X[:20], ["two"] * 20)


def test_score_and_probabilities_agree_with_their_definitions() -> None:
    model = LifelongClassifier(device="cpu").fit(X[:2000], Y[:2000])
    weight = np.random.default_rng(0).uniform(size=len(YT))
    found = model.predict(XT)
    assert model.score(XT, YT) == pytest.approx(accuracy_score(YT, found))
    assert model.score(XT, YT, sample_weight=weight) == pytest.approx(accuracy_score(YT, found, sample_weight=weight))
    p = model.predict_proba(XT)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert np.array_equal(model.classes_[p.argmax(1)], found)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(model.predict_log_proba(XT), np.log(p), rtol=1e-5)
    assert log_loss(YT, p) > 0


def test_settings_are_those_of_the_usual_methods() -> None:
    """Without a method: those of SLDA, which learns rows, or of SCoMMER, which learns images."""
    model = LifelongClassifier(settings={"shrinkage": 0.1}, device="cpu").fit(X[:500], Y[:500])
    assert (model.method_, model.settings_["shrinkage"]) == ("slda", 0.1)
    with pytest.raises(ValueError, match="unknown setting of slda 'shrinkge'"):
        LifelongClassifier(method="slda", settings={"shrinkge": 0.1})
    with pytest.raises(ValueError, match="'gamme': did you mean 'gamma'"):
        LifelongClassifier(settings={"gamme": 0.1})
    with pytest.raises(ValueError, match="features is 'resnet': give a network or a function"):
        LifelongClassifier(features="resnet")  # type: ignore[arg-type]


def test_settings_can_be_searched_and_estimators_composed() -> None:
    model = LifelongClassifier(method="er", device="cpu", settings={"width": 16})
    assert model.get_params()["settings__width"] == 16
    search = GridSearchCV(model, {"settings__epochs": [1, 4], "buffer": [20]}, cv=2, error_score="raise")
    search.fit(X[:300], Y[:300])
    assert search.best_params_["settings__epochs"] in (1, 4)
    assert search.best_estimator_.settings_["epochs"] == search.best_params_["settings__epochs"]
    assert search.best_estimator_.settings_["width"] == 16
    assert model.settings == {"width": 16}  # of the one given, nothing changed
    chained = make_pipeline(StandardScaler(), clone(LifelongClassifier(device="cpu")))
    assert cross_val_score(chained, X[:1000], Y[:1000], cv=2, error_score="raise").mean() > 0.3
