"""What a classifier with all defaults must learn of real data: late classes, small portions, any scale; how fast."""

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from real_rows import DX, DXT, DY, DYT, XT, YT, Late, X, Y

from scommer import Experiment, LifelongClassifier, class_il
from scommer.bench.floor import networks_alone
from scommer.engine.learner import Learner
from scommer.errors import RunWarning
from scommer.runs.experiment import prepare

SEEDS = (0, 1, 2)
long = pytest.mark.long


def classifier(method: str | None = None, **params: Any) -> LifelongClassifier:
    return LifelongClassifier(method=method, device="cpu", **params)


def learned_late(method: str | None, images: bool, portions: int, **params: Any) -> tuple[float, float]:
    """Mean over three seeds: recall of the late class, points that the others lose."""
    found = [Late(classifier(method, seed=seed, **params), images, seed).learn(portions) for seed in SEEDS]
    return tuple(np.mean(found, 0))  # type: ignore[return-value]


@pytest.mark.parametrize("portions", [1, 10])
def test_a_late_class_of_rows_is_learned(portions: int) -> None:
    recall, loss = learned_late(None, False, portions)
    assert recall >= 50
    assert loss <= 8


@long
@pytest.mark.parametrize(("portions", "buffer"), [(1, 200), (10, 200), (1, 100)])
def test_a_late_class_of_rows_is_learned_by_scommer(portions: int, buffer: int) -> None:
    recall, loss = learned_late("scommer", False, portions, buffer=buffer)
    assert recall >= 50
    assert loss <= 8


@long
@pytest.mark.parametrize(("portions", "buffer"), [(1, 200), (10, 200), (1, 100)])
def test_a_late_class_of_images_is_learned(portions: int, buffer: int) -> None:
    recall, loss = learned_late(None, True, portions, buffer=buffer)
    assert recall >= 50
    assert loss <= 8


@long
@pytest.mark.parametrize("images", [True, False])
def test_classes_that_come_one_by_one_are_learned(images: bool) -> None:
    x, y, xt, yt = (DX, DY, DXT, DYT) if images else (X, Y, XT, YT)
    for seed in SEEDS:
        model = classifier(seed=seed)
        order = np.random.default_rng(seed).permutation(10)
        lost, recall = [], []
        for n, c in enumerate(order):
            known = np.isin(yt, order[:n])
            before = model.score(xt[known], yt[known]) if n else 0
            which = np.flatnonzero(y == c)[:100]
            model.partial_fit(x[which], y[which])
            lost.append(before - model.score(xt[known], yt[known]) if n else 0)
            recall.append(model.score(xt[yt == c], yt[yt == c]))
        assert np.mean(recall) >= 0.5
        assert min(recall) > 0.2
        assert np.mean(lost) <= 0.08


def test_a_class_of_few_images_is_learned_at_once() -> None:
    """Also if it comes alone, and there are ten or thirty of it."""
    recalls = []
    for new in (8, 4):
        model = classifier(settings={"width": 12}).partial_fit(DX[new != DY], DY[new != DY])
        known = new != DYT
        before = model.score(DXT[known], DYT[known])
        for n in (10, 30):
            more = copy.deepcopy(model)
            which = np.flatnonzero(new == DY)[:n]
            more.partial_fit(DX[which], DY[which])
            recalls.append(more.score(DXT[~known], DYT[~known]))
            assert more.score(DXT[known], DYT[known]) > before - 0.08
    assert np.mean(recalls) > 0.5
    assert min(recalls) > 0.1


def test_one_more_image_does_no_harm() -> None:
    """Statistics are measured anew after each call: one image has poor ones."""
    model = classifier(settings={"width": 12, "epochs": 8}).partial_fit(DX[:700], DY[:700])
    before = model.score(DXT, DYT)
    assert before > 0.9
    for n in (1, 2, 3):
        more = copy.deepcopy(model)
        which = np.flatnonzero(DY == 3)[-n:]
        more.partial_fit(DX[which], DY[which])
        assert more.score(DXT, DYT) > before - 0.03


def test_rows_of_another_scale_give_a_warning() -> None:
    model = classifier().partial_fit(X[:500], Y[:500])
    with pytest.warns(RunWarning, match="standard deviations from those learned first"):
        model.partial_fit(X[500:520] * 255, Y[500:520])
    with pytest.warns(RunWarning, match="check that they have the same scale"):
        model.predict(XT * 255)


def test_values_that_float32_cannot_tell_apart_give_a_warning() -> None:
    rows = X[:200, :5].astype(np.float64)
    rows[:, 2] += 3e9
    with pytest.warns(RunWarning, match="cannot tell the values of feature 2 apart"):
        classifier().partial_fit(rows, Y[:200])
    with pytest.raises(ValueError, match="too large for float32"):
        classifier().partial_fit(rows * 1e35, Y[:200])


def test_a_feature_of_tiny_values_is_learned() -> None:
    rows = np.hstack([X[:300, :20], 1e-13 * X[:300, 20:21]])
    model = classifier().partial_fit(rows, Y[:300])
    plain = classifier().partial_fit(X[:300, :21], Y[:300])
    assert model.score(rows, Y[:300]) == pytest.approx(plain.score(X[:300, :21], Y[:300]), abs=0.01)


def test_new_classes_of_images_are_learned_with_one_seed() -> None:
    recall, loss = Late(classifier(settings={"width": 8}), images=True).learn()
    assert recall >= 50
    assert loss <= 8


@pytest.mark.parametrize("method", ["slda", "ncm", "scommer"])
def test_the_scale_of_a_feature_does_not_matter(method: str) -> None:
    settings = {"epochs": 5} if method == "scommer" else {}
    plain, scaled = (classifier(method, settings=settings) for _ in range(2))
    factor = np.ones(256, np.float32)
    factor[7], factor[9] = 1e4, 1e-4
    plain.partial_fit(X[:1500], Y[:1500])
    scaled.partial_fit(X[:1500] * factor, Y[:1500])
    accuracy = plain.score(XT, YT)
    assert accuracy > 0.35
    assert scaled.score(XT * factor, YT) == pytest.approx(accuracy, abs=0.01)


@pytest.mark.parametrize("method", ["slda", "ncm", "scommer"])
def test_constant_features_do_no_harm(method: str) -> None:
    settings = {"epochs": 5} if method == "scommer" else {}
    constant = np.tile(np.float32([0, 1e6, -3e-9]), (len(X), 1))
    plain, wide = (classifier(method, settings=settings) for _ in range(2))
    plain.partial_fit(X[:1500], Y[:1500])
    wide.partial_fit(np.hstack([X, constant])[:1500], Y[:1500])
    found = wide.score(np.hstack([XT, constant[: len(XT)]]), YT)
    tolerance = {"ncm": 0.001, "slda": 0.005, "scommer": 0.04}  # the shrinkage of SLDA depends on their number
    assert found == pytest.approx(plain.score(XT, YT), abs=tolerance[method])


@pytest.mark.parametrize(("method", "seconds"), [(None, 0.1), ("scommer", 0.1)])
def test_a_row_at_a_time_costs_little_and_loses_nothing(method: str | None, seconds: float) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = classifier(method, settings={"epochs": 5} if method else None)
        if method:
            model.set_params(settings__min_steps=300)
        model.partial_fit(X[:2000], Y[:2000])
        before, times = model.score(XT, YT), []
        for i in range(2000, 2020):
            start = time.process_time()
            model.partial_fit(X[i : i + 1], Y[i : i + 1])
            times.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    assert model.score(XT, YT) >= before - 0.01
    assert np.median(times) <= seconds


@pytest.mark.parametrize("method", [None, pytest.param("scommer", marks=long)])
def test_portions_of_the_same_kind_are_as_good_as_one_call(method: str | None) -> None:
    whole, portions = [], []
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(len(Y))[:2000]
        for found, n in ((whole, 1), (portions, 40)):
            model = classifier(method, seed=seed)
            for part in np.array_split(order, n):
                model.partial_fit(X[part], Y[part])
            found.append(100 * model.score(XT, YT))
    assert np.mean(portions) >= np.mean(whole) - 3


@long
def test_a_step_on_one_core_takes_little_more_than_its_networks() -> None:
    """The machine's speed drifts, so the two are timed in turn, and the best of each counts."""
    plan = prepare(Experiment(class_il((X[:1000], Y[:1000], XT, YT), tasks=1), "scommer", settings={"epochs": 1000}))
    threads, trace = torch.get_num_threads(), sys.gettrace()
    torch.set_num_threads(1)
    sys.settrace(None)  # coverage, which slows Python down
    try:
        learner = Learner(plan.stream, plan.method, plan.training)
        steps = (moment for moment in learner.learn() if moment == "step")
        for _ in range(10):
            next(steps)
        alone = networks_alone(learner)
        took: dict[Callable[[], object], list[float]] = {lambda: next(steps): [], alone: []}
        for _ in range(8):
            for work, seconds in took.items():
                start = time.process_time()
                for _ in range(60):
                    work()
                seconds.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
        sys.settrace(trace)
    step, networks = (min(seconds) for seconds in took.values())
    assert step <= 2 * networks


def test_a_class_that_is_not_learned_is_named() -> None:
    """Ten of 910 rows cannot win against a class that looks the same."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(910, 4)).astype(np.float32), np.repeat(["usual", "odd"], [900, 10])
    model = classifier("er", buffer=10, settings={"epochs": 1, "balanced": False})
    with pytest.warns(RunWarning, match="hardly any of the rows just learned of class 'odd' are predicted correctly"):
        model.partial_fit(x, y)


def test_a_failure_changes_nothing() -> None:
    model = classifier().partial_fit(X[:100], Y[:100])
    before = copy.deepcopy(model)
    for wrong in (X[:100, :5], X[:99], np.full_like(X[:100], np.nan)):
        with pytest.raises(ValueError, match=r".") as caught:
            model.partial_fit(wrong, Y[:100])
        assert str(caught.value)
    assert model.n_features_in_ == 256
    assert len(model.history_) == 1
    assert np.array_equal(model.predict_proba(XT), before.predict_proba(XT))
