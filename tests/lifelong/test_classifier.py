"""The classifier learns task by task exactly what a run learns, and behaves as a scikit-learn estimator."""

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
from quick import METHODS_BY_TASK, SETTINGS, settings, tasks
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_is_fitted

from scommer import Experiment, LifelongClassifier, Stream, load_trained, run
from scommer.engine.learner import Learner, Moment
from scommer.errors import RunError, RunWarning, UsageError
from scommer.runs.experiment import Plan
from scommer.runs.progress import Watch
from scommer.runs.trained import with_prefix


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        *((method, {}) for method in METHODS_BY_TASK),
        ("scommer", {"statistics": "recalibrated"}),
        ("der++", {"momentum": 0.9}),
    ],
)
def test_it_learns_exactly_what_a_run_learns_from_the_same_tasks(
    method: str, extra: dict[str, Any], stream: Stream, tmp_path: Path
) -> None:
    chosen = {**settings(method), "epochs": 1, **extra}
    record = run(
        Experiment(stream, method, buffer=30, seed=3, settings=chosen),
        out=tmp_path / "runs",
        weights=True,
        device="cpu",
    )
    model = LifelongClassifier(10, method, buffer=30, seed=3, settings=chosen, device="cpu")
    for t, (images, labels) in enumerate(tasks(stream)):
        model.partial_fit(images, labels)
        if t % 2:  # as if another process continued
            model.save(tmp_path / "model")
            model = LifelongClassifier.load(tmp_path / "model", device="cpu")
    (saved,) = (tmp_path / "runs").glob("*/weights.safetensors")
    expected_weights = with_prefix(f"{record.inference}.", safetensors.torch.load_file(saved))
    weights = model._learned_state().weights
    assert expected_weights.keys() == weights.keys()
    assert all(torch.equal(expected_weights[k], weights[k]) for k in weights)
    images, labels = stream.data.test_images, stream.data.test_labels
    expected = load_trained(saved.parent).predict(images)
    assert np.array_equal(model.predict(images), expected.numpy())
    assert model.score(images, labels) == pytest.approx((expected == labels).float().mean().item())
    assert [task["classes"] for task in model.history_] == [list(t.classes) for t in stream.tasks]


def test_it_remembers_earlier_tasks_where_sgd_forgets_them() -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    train, test = np.arange(len(labels)) % 5 > 0, np.arange(len(labels)) % 5 == 0
    accuracy = {}
    for method in ("scommer", "sgd"):
        model = LifelongClassifier(10, method, buffer=50, settings={"epochs": 8}, device="cpu")
        for first in range(0, 10, 2):
            now = train & np.isin(labels, (first, first + 1))
            model.partial_fit(images[now], labels[now])
        early = test & (labels < 8)
        accuracy[method] = model.score(images[early], labels[early])
    assert accuracy["sgd"] < 0.1
    assert accuracy["scommer"] > 0.7


def test_labels_may_be_strings(stream: Stream) -> None:
    names = np.array(["zero", "one", "two", "three"])
    model = LifelongClassifier(list(names), "er", buffer=30, settings=SETTINGS | {"epochs": 8}, device="cpu")
    for images, labels in tasks(stream)[:2]:
        assert model.partial_fit(images, names[labels.numpy()].tolist()) is model
    images, labels = tasks(stream)[1]
    assert set(model.predict(images)) <= set(names)
    p = model.predict_proba(images)
    assert p.shape == (len(images), 4)
    assert np.allclose(p.sum(1), 1, atol=1e-5)
    assert model.score(images, names[labels.numpy()]) == np.mean(model.predict(images) == names[labels.numpy()]) > 0.9


def test_classes_may_recur_and_tasks_may_be_small(stream: Stream) -> None:
    (images, labels), _, (next_images, next_labels), *_ = tasks(stream)
    model = LifelongClassifier(range(10), buffer=10, settings=settings("scommer"), device="cpu")
    model.partial_fit(images, labels).partial_fit(next_images[:1], next_labels[:1]).partial_fit(images[:3], labels[:3])
    assert [task["images"] for task in model.history_] == [len(images), 1, 3]
    assert np.isfinite(model.predict_proba(images)).all()


def test_it_keeps_learning_on_another_type_of_device(stream: Stream) -> None:
    (one, ones), (two, twos), *_ = tasks(stream)
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS | {"epochs": 8}, device="cpu")
    state = model.partial_fit(one, ones)._learned_state()
    tensors = {k: t if k.startswith("memories/") else t[:16] for k, t in state.tensors.items()}  # as on a GPU
    model._state = replace(state, tensors=tensors, device="cuda")
    assert model.partial_fit(two, twos).score(two, twos) > 0.9


class Stop(Watch):
    """Presses Ctrl-C after so many moments."""

    def __init__(self, after: int) -> None:
        self.left = after

    def moment(self, learner: Learner, moment: Moment) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_an_interrupted_task_leaves_no_trace(stream: Stream) -> None:
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


def test_a_task_that_diverges_to_nan_leaves_no_trace(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    with pytest.raises(RunError, match="learning rate"):  # diverges in its only step, after the loss was computed
        LifelongClassifier(10, seed=1, settings={"epochs": 1, "lr": 1e6}, device="cpu").partial_fit(
            images[:32], labels[:32]
        )
    model = LifelongClassifier(10, "sgd", settings=SETTINGS, device="cpu").partial_fit(images, labels)
    before = model.predict_proba(images)
    model._state = replace(model._learned_state(), settings={**model.settings_, "lr": 1e30})
    for learn in (model.partial_fit, model.fit):
        if learn == model.fit:
            model.settings = {**SETTINGS, "lr": 1e30}
        with pytest.raises(RunError, match="learning rate"):
            learn(images, labels)
        assert np.array_equal(model.predict_proba(images), before)


def test_a_diverging_loss_is_a_warning(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, seed=1, variant="official", settings={**SETTINGS, "gamma": 100.0}, device="cpu")
    with pytest.warns(RunWarning, match=r"diverges.* \d\d+"):
        model.partial_fit(images, labels)
    assert model.history_[-1]["loss"] > 5 * np.log(10)


def test_only_classes_that_have_occurred_are_predicted(stream: Stream) -> None:
    (images, labels), (next_images, next_labels), *_ = tasks(stream)
    model = LifelongClassifier(10, "cls-er", buffer=30, settings=settings("cls-er"), device="cpu").partial_fit(
        images[:20], labels[:20]
    )
    p = model.predict_proba(next_images)
    assert (p[:, 2:] == 0).all()
    assert (p[:, :2] > 0).all()
    assert set(model.partial_fit(next_images, next_labels).predict(next_images)) <= {0, 1, 2, 3}


def test_it_can_be_cloned_scored_pickled_and_copied(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu")
    again = clone(model)
    assert again.get_params() == model.get_params()
    model.fit(images, labels)
    assert get_scorer("accuracy")(model, images, labels.numpy()) == model.score(images, labels)
    assert model.classes_.tolist() == list(range(10))
    assert not again.history_
    for copy in (pickle.loads(pickle.dumps(model)), deepcopy(model)):
        second = tasks(stream)[1]
        expected = deepcopy(model).partial_fit(*second).predict_proba(second[0])
        assert np.array_equal(copy.partial_fit(*second).predict_proba(second[0]), expected)


def test_probabilities_follow_the_sorted_classes(stream: Stream) -> None:
    """Scorers of scikit-learn rely on it, in whatever order the classes were given."""
    (images, labels), (new_images, new_labels), *_ = tasks(stream)
    names = np.array(["dog", "cat", "ape"])
    model = LifelongClassifier(names[:2].tolist(), "er", buffer=30, settings=SETTINGS, device="cpu")
    new_images, new_labels = new_images[new_labels == 2], new_labels[new_labels == 2]
    model.partial_fit(images, names[labels]).add_classes(["ape"]).partial_fit(new_images, names[new_labels])
    assert model.classes_.tolist() == ["ape", "cat", "dog"]
    both, truth = torch.cat([images, new_images]), names[torch.cat([labels, new_labels])]
    p = model.predict_proba(both)
    assert (model.classes_[p.argmax(1)] == model.predict(both)).all()
    right = [p[i, model.classes_.tolist().index(c)] for i, c in enumerate(truth)]
    assert get_scorer("neg_log_loss")(model, both, truth) == pytest.approx(np.log(right).mean(), rel=1e-4)


def test_predicting_before_learning_raises_not_fitted_error(stream: Stream) -> None:
    model = LifelongClassifier(10)
    assert not hasattr(model, "settings_")
    with pytest.raises(NotFittedError, match="call fit or partial_fit first"):
        model.predict(tasks(stream)[0][0])


def test_parameters_may_change_only_before_fit(stream: Stream, tmp_path: Path) -> None:
    (images, labels), second, *_ = tasks(stream)
    model = LifelongClassifier(10, "er", buffer=30, settings={"epochs": 2, "width": 8}, device="cpu")
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    model.partial_fit(images, list(labels.numpy()))  # a list of NumPy scalars
    check_is_fitted(model)
    model.save(tmp_path / "model")
    for name, value in (("buffer", 50), ("method", "sgd"), ("classes", 4), ("settings", {"epochs": 3})):
        before = model.get_params()[name]
        model.set_params(**{name: value})
        with pytest.raises(UsageError, match=f"{name} changed since the first task"):
            model.partial_fit(*second)
        model.set_params(**{name: before})
    loaded = LifelongClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.get_params() == model.get_params()
    assert np.array_equal(loaded.fit(*second).predict_proba(second[0]), model.fit(*second).predict_proba(second[0]))
    assert model.set_params(classes=4).fit(images, labels).predict_proba(images).shape[1] == 4
    with pytest.raises(UsageError, match="all tasks at once"):
        model.set_params(method="joint").fit(images, labels)


def test_it_predicts_but_refuses_to_learn_while_it_learns(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu").partial_fit(images, labels)
    before = model.predict_proba(images)
    seen: list[object] = []

    class Meddle(Watch):
        def moment(self, learner: Learner, moment: Moment) -> None:
            if not seen:
                seen.append(model.predict_proba(images))  # from the state before
                with pytest.raises(UsageError, match="already learning"):
                    model.partial_fit(images, labels)

    for learn in (model.partial_fit, model.fit):
        before = model.predict_proba(images)
        seen.clear()
        with torch.no_grad():  # as in a server that otherwise only predicts
            learn(*tasks(stream)[1], watch=Meddle())
        assert np.array_equal(seen[0], before)  # type: ignore[arg-type]


def test_learners_are_freed_after_each_task(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    held: list[weakref.ref[Learner]] = []

    class Hold(Watch):
        def begin(self, plan: Plan, learner: Learner, together: int) -> None:
            held.append(weakref.ref(learner))

    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS | {"epochs": 1}, device="cpu")
    for _ in range(2):
        model.partial_fit(images, labels, watch=Hold())
    assert [learner() for learner in held] == [None, None]


def test_the_docstring_example_runs() -> None:
    import doctest

    from scommer.lifelong import classifier

    assert doctest.testmod(classifier) == (0, 6)


def test_labels_of_another_type_are_refused_when_scoring() -> None:
    model = LifelongClassifier(method="ncm", device="cpu").partial_fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    assert model.score([[0.0, 1.0], [1.0, 0.0]], [0, 7]) == 0.5  # a class that it never saw is an error like any other
    with pytest.raises(UsageError, match="y has labels of type str, unlike the classes"):
        model.score([[0.0, 1.0], [1.0, 0.0]], ["0", "1"])
