"""A classifier that learns on: what it makes of tasks that come over time is what a run makes of them at once."""

import pickle
import weakref
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from short import SETTINGS, settings, tasks
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_is_fitted

from scommer import Experiment, LifelongClassifier, Stream, load_trained, run
from scommer.engine.learner import Learner, Moment
from scommer.errors import RunError, RunWarning, UsageError
from scommer.runs.experiment import Plan
from scommer.runs.run import Watch


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        ("scommer", {}),
        ("scommer", {"statistics": "recalibrated"}),
        ("cls-er", {}),
        ("der++", {"momentum": 0.9}),
        ("er", {}),
        ("sgd", {}),
    ],
)
def test_tasks_over_time_are_what_a_run_makes_of_them_at_once(
    method: str, extra: dict[str, Any], stream: Stream, tmp_path: Path
) -> None:
    chosen = settings(method) | extra
    record = run(
        Experiment(stream, method, buffer=30, seed=3, settings=chosen),
        out=tmp_path / "runs",
        weights=True,
        device="cpu",
    )
    model = LifelongClassifier(10, method, buffer=30, seed=3, settings=chosen, device="cpu")
    for t, (images, labels) in enumerate(tasks(stream)):
        model.partial_fit(images, labels)
        if t % 2:  # another process goes on
            model.save(tmp_path / "model")
            model = LifelongClassifier.load(tmp_path / "model", device="cpu")
    (kept,) = (tmp_path / "runs").glob("*/weights.safetensors")
    whole = safetensors.torch.load_file(kept)
    own = {k.removeprefix(f"{record.inference}."): t for k, t in whole.items() if k.startswith(f"{record.inference}.")}
    weights = model._now().weights
    assert own.keys() == weights.keys()
    assert all(torch.equal(own[k], weights[k]) for k in own)
    images, labels = stream.data.test_images, stream.data.test_labels
    expected = load_trained(kept.parent).predict(images)
    assert np.array_equal(model.predict(images), expected.numpy())
    assert model.score(images, labels) == pytest.approx((expected == labels).float().mean().item())
    assert [task["classes"] for task in model.history_] == [list(t.classes) for t in stream.tasks]


def test_it_remembers_what_it_no_longer_sees() -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    train, test = np.arange(len(labels)) % 5 > 0, np.arange(len(labels)) % 5 == 0
    known = {}
    for method in ("scommer", "sgd"):
        model = LifelongClassifier(10, method, buffer=50, settings={"epochs": 8}, device="cpu")
        for first in range(0, 10, 2):
            now = train & np.isin(labels, (first, first + 1))
            model.partial_fit(images[now], labels[now])
        early = test & (labels < 8)
        known[method] = model.score(images[early], labels[early])
    assert known["sgd"] < 0.1
    assert known["scommer"] > 0.7


def test_labels_are_those_that_were_named(stream: Stream) -> None:
    words = np.array(["zero", "one", "two", "three"])
    model = LifelongClassifier(list(words), "er", buffer=30, settings=SETTINGS | {"epochs": 8}, device="cpu")
    for images, labels in tasks(stream)[:2]:
        assert model.partial_fit(images, words[labels.numpy()].tolist()) is model
    images, labels = tasks(stream)[1]
    assert set(model.predict(images)) <= set(words)
    p = model.predict_proba(images)
    assert p.shape == (len(images), 4)
    assert np.allclose(p.sum(1), 1, atol=1e-5)
    assert model.score(images, words[labels.numpy()]) == np.mean(model.predict(images) == words[labels.numpy()]) > 0.9


def test_classes_may_come_back_and_tasks_be_small(stream: Stream) -> None:
    (images, labels), _, (others, their), *_ = tasks(stream)
    model = LifelongClassifier(range(10), buffer=10, settings=settings("scommer"), device="cpu")
    model.partial_fit(images, labels).partial_fit(others[:1], their[:1]).partial_fit(images[:3], labels[:3])
    assert [task["images"] for task in model.history_] == [len(images), 1, 3]
    assert np.isfinite(model.predict_proba(images)).all()


def test_it_learns_on_where_generators_are_of_another_device(stream: Stream) -> None:
    (one, ones), (two, twos), *_ = tasks(stream)
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS | {"epochs": 8}, device="cpu").partial_fit(
        one, ones
    )
    state = {k: t if k.startswith("memories/") else t[:16] for k, t in model._now().state.items()}  # as a GPU's are
    model._known = replace(model._now(), state=state, device="cuda")
    assert model.partial_fit(two, twos).score(two, twos) > 0.9


class Stop(Watch):
    """Ctrl-C after so many moments."""

    def __init__(self, after: int) -> None:
        self.left = after

    def moment(self, learner: Learner, moment: Moment) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_what_is_broken_off_has_not_been(stream: Stream, tmp_path: Path) -> None:
    (one, ones), (two, twos), *_ = tasks(stream)
    models = [LifelongClassifier(10, buffer=30, settings=settings("scommer"), device="cpu") for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        models[0].partial_fit(one, ones, watch=Stop(5))
    assert models[0].history_ == []
    for model in models:
        model.partial_fit(one, ones)
    before = models[0].predict_proba(two)
    for after in (1, 7):
        with pytest.raises(KeyboardInterrupt):
            models[0].partial_fit(two, twos, watch=Stop(after))
    assert np.array_equal(models[0].predict_proba(two), before)
    for model in models:
        model.partial_fit(two, twos)
    assert np.array_equal(models[0].predict_proba(two), models[1].predict_proba(two))


def test_training_that_goes_astray_changes_nothing(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    with pytest.raises(RunError, match="learning rate"):  # in its only step: the loss was measured before it
        LifelongClassifier(10, seed=1, settings={"epochs": 1, "lr": 1e6}, device="cpu").partial_fit(
            images[:32], labels[:32]
        )
    model = LifelongClassifier(10, "sgd", settings=SETTINGS, device="cpu").partial_fit(images, labels)
    before = model.predict_proba(images)
    model._known = replace(model._now(), settings={**model.settings_, "lr": 1e30})
    for learn in (model.partial_fit, model.fit):
        if learn == model.fit:
            model.settings = {**SETTINGS, "lr": 1e30}
        with pytest.raises(RunError, match="learning rate"):
            learn(images, labels)
        assert np.array_equal(model.predict_proba(images), before)


def test_training_that_diverges_is_told_of(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, seed=1, settings={**SETTINGS, "gamma": 100.0}, device="cpu")
    with pytest.warns(RunWarning, match=r"diverges, to a mean loss of \d\d+"):
        model.partial_fit(images, labels)
    assert model.history_[-1]["loss"] > 5 * np.log(10)


def test_only_classes_that_have_come_are_answers(stream: Stream) -> None:
    (images, labels), (others, their), *_ = tasks(stream)
    model = LifelongClassifier(10, "cls-er", buffer=30, settings=settings("cls-er"), device="cpu").partial_fit(
        images[:20], labels[:20]
    )
    p = model.predict_proba(others)
    assert (p[:, 2:] == 0).all()
    assert (p[:, :2] > 0).all()
    assert set(model.partial_fit(others, their).predict(others)) <= {0, 1, 2, 3}


def test_it_is_an_estimator_of_scikit_learn(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu")
    again = clone(model)
    assert again.get_params() == model.get_params()
    model.fit(images, labels)
    assert get_scorer("accuracy")(model, images, labels.numpy()) == model.score(images, labels)
    assert model.classes_.tolist() == list(range(10))
    assert not again.history_
    for copy in (pickle.loads(pickle.dumps(model)), deepcopy(model)):
        others = tasks(stream)[1]
        expected = deepcopy(model).partial_fit(*others).predict_proba(others[0])
        assert np.array_equal(copy.partial_fit(*others).predict_proba(others[0]), expected)


def test_probabilities_are_in_the_order_of_sorted_classes(stream: Stream) -> None:
    """Which the scores of scikit-learn rely on, however the classes were given."""
    (images, labels), (more, their), *_ = tasks(stream)
    words = np.array(["dog", "cat", "ape"])
    model = LifelongClassifier(words[:2].tolist(), "er", buffer=30, settings=SETTINGS, device="cpu")
    more, their = more[their == 2], their[their == 2]
    model.partial_fit(images, words[labels]).add_classes(["ape"]).partial_fit(more, words[their])
    assert model.classes_.tolist() == ["ape", "cat", "dog"]
    both, told = torch.cat([images, more]), words[torch.cat([labels, their])]
    p = model.predict_proba(both)
    assert (model.classes_[p.argmax(1)] == model.predict(both)).all()
    right = [p[i, model.classes_.tolist().index(c)] for i, c in enumerate(told)]
    assert get_scorer("neg_log_loss")(model, both, told) == pytest.approx(np.log(right).mean(), rel=1e-4)


def test_what_has_learned_nothing_says_so_as_scikit_learn_does(stream: Stream) -> None:
    model = LifelongClassifier(10)
    assert not hasattr(model, "settings_")
    with pytest.raises(NotFittedError, match="call partial_fit first"):
        model.predict(tasks(stream)[0][0])


def test_parameters_stay_until_it_is_fitted_anew(stream: Stream, tmp_path: Path) -> None:
    (images, labels), others, *_ = tasks(stream)
    model = LifelongClassifier(10, "er", buffer=30, settings={"epochs": 2, "width": 8}, device="cpu")
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    model.partial_fit(images, list(labels.numpy()))  # a list of NumPy's numbers
    check_is_fitted(model)
    model.save(tmp_path / "model")
    for name, value in (("buffer", 50), ("method", "sgd"), ("classes", 4), ("settings", {"epochs": 3})):
        before = model.get_params()[name]
        model.set_params(**{name: value})
        with pytest.raises(UsageError, match=f"{name} changed since the first task"):
            model.partial_fit(*others)
        model.set_params(**{name: before})
    loaded = LifelongClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.get_params() == model.get_params()
    assert np.array_equal(loaded.fit(*others).predict_proba(others[0]), model.fit(*others).predict_proba(others[0]))
    assert model.set_params(classes=4).fit(images, labels).predict_proba(images).shape[1] == 4
    with pytest.raises(UsageError, match="all tasks at once"):
        model.set_params(method="joint").fit(images, labels)


def test_one_task_at_a_time(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu").partial_fit(images, labels)
    before = model.predict_proba(images)
    seen: list[object] = []

    class Meddle(Watch):
        def moment(self, learner: Learner, moment: Moment) -> None:
            if not seen:
                seen.append(model.predict_proba(images))  # what it knew before
                with pytest.raises(UsageError, match="learning already"):
                    model.partial_fit(images, labels)

    for learn in (model.partial_fit, model.fit):
        before = model.predict_proba(images)
        seen.clear()
        with torch.no_grad():  # as in a server that only answers otherwise
            learn(*tasks(stream)[1], watch=Meddle())
        assert np.array_equal(seen[0], before)  # type: ignore[arg-type]


def test_what_has_been_learned_is_let_go(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    held: list[weakref.ref[Learner]] = []

    class Hold(Watch):
        def begin(self, plan: Plan, learner: Learner, together: int) -> None:
            held.append(weakref.ref(learner))

    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS | {"epochs": 1}, device="cpu")
    for _ in range(2):
        model.partial_fit(images, labels, watch=Hold())
    assert [learner() for learner in held] == [None, None]


def test_the_example_in_its_docstring_runs() -> None:
    import doctest

    from scommer.lifelong import classifier

    assert doctest.testmod(classifier) == (0, 6)
