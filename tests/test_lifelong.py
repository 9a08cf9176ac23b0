"""A classifier that learns on: what it makes of tasks that come over time is what a run makes of them at once."""

import pickle
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_is_fitted

from scommer import Experiment, LifelongClassifier, Stream, class_il, load_trained, run
from scommer.data import load
from scommer.errors import RunError, RunWarning, UsageError
from scommer.experiment import Plan
from scommer.learner import Learner, Moment
from scommer.underway import Watch

SETTINGS: dict[str, Any] = {
    "network": "small", "width": 8, "epochs": 2, "pad": 1, "mean": [0.3], "std": [0.4],
}  # fmt: skip


def settings(method: str) -> dict[str, Any]:
    extra = {"scommer": {"warmup": 0, "alpha": 0.99}, "cls-er": {"alpha": 0.99}}
    return SETTINGS | extra.get(method, {})


@pytest.fixture(scope="module")
def stream() -> Stream:
    return class_il(load("digits"), tasks=5, name="my-digits")


def tasks(stream: Stream) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(stream.data.train_images[t.train], stream.data.train_labels[t.train]) for t in stream.tasks]


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
    state = {k: t if k.startswith("mind/") else t[:16] for k, t in model._now().state.items()}  # as a GPU's are
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


def test_images_of_another_scale_are_refused(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", settings={"epochs": 1}, device="cpu").partial_fit(
        images.float() / images.max(), labels
    )
    with pytest.raises(UsageError, match="in the same scale"):
        model.partial_fit(images.float() / images.max() * 255, labels)
    flat = np.zeros((4, 8, 8), np.float32)
    with pytest.raises(UsageError, match="give both in settings"):
        LifelongClassifier(10, "er", device="cpu").partial_fit(flat, [0] * 4)
    with pytest.raises(UsageError, match="give both in settings"):
        LifelongClassifier(10, "er", device="cpu").partial_fit(np.ones((1, 1, 1), np.float32), [0])
    told = {"mean": [0.5], "std": [0.25], "epochs": 1}
    assert (
        LifelongClassifier(10, "er", settings=told, device="cpu").partial_fit(flat, [0] * 4).predict(flat).tolist()
        == [0] * 4
    )


def test_a_channel_that_is_the_same_everywhere_does_no_harm(stream: Stream) -> None:
    """As the opacity of photographs."""
    images, labels = tasks(stream)[0]
    opaque = torch.cat([images, images, images, torch.full_like(images, 255)], 1)
    model = LifelongClassifier(10, "er", settings={"epochs": 3}, device="cpu").partial_fit(opaque, labels)
    assert model.score(opaque, labels) > 0.9


def test_images_in_another_scale_are_answered_with_a_warning(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    pixels = images.float().numpy() / 255
    model = LifelongClassifier(2, "er", buffer=10, settings=SETTINGS, device="cpu").partial_fit(pixels, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(pixels)
    with pytest.warns(RunWarning, match="standard deviations from those learned, on average: were they given"):
        model.predict(255 * pixels)


def test_settings_follow_the_first_images_and_stay() -> None:
    rng = np.random.default_rng(0)
    bright = rng.integers(150, 255, (40, 8, 8), dtype=np.uint8)
    model = LifelongClassifier(2, settings={"epochs": 2, "width": 8}, device="cpu")
    model.partial_fit(bright, [0] * 40)
    first = model.settings_
    assert first["mean"] == [pytest.approx(bright.mean() / 255, abs=1e-3)]
    model.partial_fit(bright // 4, [1] * 40)
    assert model.settings_ == first
    model.fit(bright // 4, [1] * 40)  # from the beginning
    assert model.settings_["mean"] == [pytest.approx((bright // 4).mean() / 255, abs=1e-3)]
    assert len(model.history_) == 1


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


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"classes": 1}, "at least 2"),
        ({"classes": ["a", "a"]}, "of 2 classes 1 differ: give at least 2, each once"),
        ({"classes": ["a", "a\0"]}, "without a zero byte"),
        ({"classes": "abc"}, "a list of whole numbers, or one of words"),
        ({"classes": [0.5, 1.5]}, "a list of whole numbers, or one of words"),
        ({"classes": [0, "a"]}, "a list of whole numbers, or one of words"),
        ({"classes": [[1], [2, 3]]}, "a list of whole numbers, or one of words"),
        ({"variant": None}, "unknown variant 'None'"),
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
def test_what_cannot_be_is_told_at_once(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        LifelongClassifier(**{"classes": 10, "device": "cpu", **wrong})


def test_images_and_labels_must_fit_what_was_learned(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu")
    for early in (lambda: model.predict(images), lambda: model.save("never")):
        with pytest.raises(UsageError, match="nothing has been learned yet"):
            early()
    assert not Path("never").exists()
    model.partial_fit(images, labels)
    with pytest.raises(UsageError, match="8 × 9"):
        model.predict(np.zeros((2, 8, 9), np.float32))
    other = np.zeros((2, 8, 8), np.uint8 if images.is_floating_point() else np.float32)
    with pytest.raises(UsageError, match=f"these images are {other.dtype} 1 × 8 × 8"):
        model.partial_fit(other, [0, 1])
    with pytest.raises(UsageError, match="label 10 is none of the 10 classes: mend it, or make room by add_classes"):
        model.partial_fit(images[:2], [3, 10])
    for labels_given, words in (
        ([3], "for 2 images there are 1 labels"),
        (3, "there are a int"),
        ("ab", "there are a str"),
        ([3, None], "label None"),
        ([[3], [3]], "label \\[3\\]"),
        (np.array([[3], [3]]), "label \\[3\\]"),
        (torch.tensor([0.5, 1.0], requires_grad=True), "label 0.5"),
        (["0", "1"], "label '0'"),
    ):
        with pytest.raises(UsageError, match=words):
            model.partial_fit(images[:2], labels_given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="layout is 'bogus'"):
        model.predict(images, layout="bogus")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="empty"):
        model.partial_fit(images[:0], [])
    assert len(model.history_) == 1


def test_only_whole_classifiers_are_loaded(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        LifelongClassifier.load(tmp_path / "nowhere", device="cpu")
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"not a model")
    with pytest.raises(UsageError, match="damaged, or no classifier"):
        LifelongClassifier.load(path, device="cpu")
    safetensors.torch.save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(UsageError, match="no classifier"):
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
    with pytest.raises(RunError, match="cannot write"):
        model.save(tmp_path / "nowhere" / "model")


def test_the_example_in_its_docstring_runs() -> None:
    import doctest

    from scommer import lifelong

    assert doctest.testmod(lifelong) == (0, 6)


def test_vectors_are_learned_by_a_perceptron() -> None:
    """As images of one row, and against a nearest mean of all classes, which forgets nothing."""
    vectors, labels = load_digits(return_X_y=True)
    vectors = (vectors / 16).astype(np.float32)
    train, test = np.arange(len(labels)) % 5 > 0, np.arange(len(labels)) % 5 == 0
    model, rows = (LifelongClassifier(10, buffer=50, settings={"epochs": 10}, device="cpu") for _ in range(2))
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


# --- classes that nobody thought of


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        ("scommer", {}),
        ("scommer", {"network": "mlp"}),
        ("cls-er", {}),
        ("der++", {"momentum": 0.9}),
        ("er", {}),
        ("sgd", {}),
    ],
)
def test_room_for_more_classes_changes_nothing_that_was_learned(
    method: str, extra: dict[str, Any], stream: Stream, tmp_path: Path
) -> None:
    """Each part of the state against what it was before, the network's by running the head by hand."""
    (images, labels), (others, their), *_ = tasks(stream)
    model = LifelongClassifier(3, method, buffer=30, settings=settings(method) | extra, device="cpu")
    model.partial_fit(images, labels)
    before, answers = model._now(), model.predict_proba(images)
    logits = before.answering.respond(images)
    assert model.add_classes(2) is model
    after = model._now()
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert torch.allclose(after.answering.respond(images)[:, :3], logits, atol=1e-5)
    p = model.predict_proba(images)
    assert np.allclose(p[:, :3], answers, atol=1e-5)
    assert not p[:, 3:].any()
    for name, t in before.state.items():
        now = after.state[name]
        if name.endswith(("theta", "velocity")):
            features = before.weights["head.weight"].shape[1]
            body, head, bias = t.split([len(t) - 3 * features - 3, 3 * features, 3])
            its_body, its_head, its_bias = now.split([len(body), 5 * features, 5])
            assert torch.equal(its_body, body)
            assert torch.equal(its_head[: 3 * features], head)
            assert torch.equal(its_bias[:3], bias)
            assert its_head[3 * features :].any() == name.endswith("theta")
        elif "/a_s" in name or "/p_s" in name:
            assert torch.equal(now[:3], t)
            assert now.shape[0] == 5
            assert not now[3:].any()
        elif name == "mind/episodic/logits":
            assert torch.equal(now[:, :3], t)
            assert torch.equal(now[:, 3:], t.min(1).values[:, None].expand(-1, 2))
        else:
            assert torch.equal(now, t), name
    model.save(tmp_path / "model")
    again = LifelongClassifier.load(tmp_path / "model", device="cpu")
    for one in (model, again):
        one.partial_fit(others, their)
    assert np.array_equal(model.predict_proba(others), again.predict_proba(others))
    assert model.history_[-1]["classes"] == [2, 3]


def test_classes_that_are_added_are_learned_and_the_others_remembered() -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    words = np.array([f"digit {c}" for c in range(10)])
    train, test = np.arange(len(labels)) % 5 > 0, np.arange(len(labels)) % 5 == 0
    model = LifelongClassifier(words[:2].tolist(), buffer=50, settings={"epochs": 8}, device="cpu")
    for first in range(0, 10, 2):
        if first:
            model.add_classes(words[first : first + 2])
        now = train & np.isin(labels, (first, first + 1))
        model.partial_fit(images[now], words[labels[now]])
    assert model.classes_.tolist() == words.tolist() == model.get_params()["classes"]
    early, late = test & (labels < 8), test & (labels >= 8)
    assert model.score(images[early], words[labels[early]]) > 0.7
    assert model.score(images[late], words[labels[late]]) > 0.5


def test_classes_are_added_before_the_first_task_too(stream: Stream) -> None:
    images, labels = tasks(stream)[1]
    grown = LifelongClassifier(2, "er", buffer=10, settings=SETTINGS, device="cpu").add_classes([2, 3])
    named = LifelongClassifier([0, 1, 2, 3], "er", buffer=10, settings=SETTINGS, device="cpu")
    for model in (grown, named):
        model.partial_fit(images, labels)
    assert np.array_equal(grown.predict_proba(images), named.predict_proba(images))


@pytest.mark.parametrize(
    ("classes", "more", "words"),
    [
        (3, 0, "0 more classes are none"),
        (3, [2], "2 is one of the 3 classes already"),
        (3, ["a"], "classes are not understood"),
        (["a", "b"], 1, "such as 'a': give those of the new ones"),
        (["a", "b"], "owl", "give a list of their labels"),
        (["a", "b"], [], "give a list of their labels"),
        (["a", "b"], ["c", "c"], "4 classes 3 differ"),
    ],
)
def test_classes_that_cannot_be_added_are_told(classes: Any, more: Any, words: str) -> None:
    model = LifelongClassifier(classes, "er", buffer=10, settings=SETTINGS, device="cpu")
    with pytest.raises(UsageError, match=words):
        model.add_classes(more)
    assert len(model.classes_) == (3 if classes == 3 else 2)


def test_classes_are_not_added_where_something_else_was_changed(stream: Stream) -> None:
    model = LifelongClassifier(3, "er", buffer=10, settings=SETTINGS, device="cpu").partial_fit(*tasks(stream)[0])
    model.set_params(seed=1)
    with pytest.raises(UsageError, match="seed changed since"):
        model.add_classes(1)
    assert len(model.classes_) == 3


def test_answers_go_on_while_classes_are_added(stream: Stream) -> None:
    images, labels = tasks(stream)[0]
    model = LifelongClassifier(2, "er", buffer=10, settings=SETTINGS, device="cpu").partial_fit(images, labels)
    with ThreadPoolExecutor(1) as other:
        answers = other.submit(lambda: [model.predict(images[:8]).shape for _ in range(150)])
        while not answers.done():
            model.add_classes(1)
        assert set(answers.result()) == {(8,)}
    assert len(model.classes_) > 2
