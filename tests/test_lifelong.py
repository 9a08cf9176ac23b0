"""A classifier that learns on: what it makes of tasks that come over time is what a run makes of them at once."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.datasets import load_digits

from scommer import Experiment, LifelongClassifier, Stream, class_il, load_trained, run
from scommer.data import load
from scommer.errors import RunError, RunWarning, UsageError
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


@pytest.mark.parametrize("method", ["scommer", "cls-er", "der++", "er", "sgd"])
def test_tasks_over_time_are_what_a_run_makes_of_them_at_once(method: str, stream: Stream, tmp_path: Path) -> None:
    experiment = Experiment(stream, method, buffer=30, seed=3, settings=settings(method))
    record = run(experiment, out=tmp_path / "runs", weights=True, device="cpu")
    model = LifelongClassifier(10, method, buffer=30, seed=3, settings=settings(method), device="cpu")
    for t, (images, labels) in enumerate(tasks(stream)):
        model.partial_fit(images, labels)
        if t % 2:  # another process goes on
            model.save(tmp_path / "model")
            model = LifelongClassifier.load(tmp_path / "model", device="cpu")
    (kept,) = (tmp_path / "runs").glob("*/weights.safetensors")
    whole = safetensors.torch.load_file(kept)
    own = {k.removeprefix(f"{record.inference}."): t for k, t in whole.items() if k.startswith(f"{record.inference}.")}
    assert own.keys() == model._weights.keys()
    assert all(torch.equal(own[k], model._weights[k]) for k in own)
    images, labels = stream.data.test_images, stream.data.test_labels
    expected = load_trained(kept.parent).predict(images)
    assert np.array_equal(model.predict(images), expected.numpy())
    assert model.score(images, labels) == pytest.approx((expected == labels).float().mean().item())
    assert [task["classes"] for task in model.history] == [list(t.classes) for t in stream.tasks]


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
    assert "2 tasks learned, 4 of 4 classes" in repr(model)


def test_classes_may_come_back_and_tasks_be_small(stream: Stream) -> None:
    (images, labels), _, (others, their), *_ = tasks(stream)
    model = LifelongClassifier(range(10), buffer=10, settings=settings("scommer"), device="cpu")
    model.partial_fit(images, labels).partial_fit(others[:1], their[:1]).partial_fit(images[:3], labels[:3])
    assert [task["images"] for task in model.history] == [len(images), 1, 3]
    assert np.isfinite(model.predict_proba(images)).all()


def test_it_learns_on_where_generators_are_of_another_device(stream: Stream) -> None:
    (one, ones), (two, twos), *_ = tasks(stream)
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS | {"epochs": 8}, device="cpu").partial_fit(
        one, ones
    )
    model._trained_on = "cuda"
    model._state = {k: t if k.startswith("mind/") else t[:16] for k, t in model._state.items()}  # as a GPU's are
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
    assert models[0].history == []
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
    model = LifelongClassifier(10, "sgd", settings=SETTINGS, device="cpu").partial_fit(images, labels)
    before = model.predict_proba(images)
    model.asked.settings["lr"] = 1e30  # type: ignore[index]
    with pytest.raises(RunError, match="learning rate"):
        model.partial_fit(images, labels)
    assert np.array_equal(model.predict_proba(images), before)


def test_settings_follow_the_first_images_and_stay() -> None:
    rng = np.random.default_rng(0)
    bright = rng.integers(200, 255, (40, 8, 8), dtype=np.uint8)
    model = LifelongClassifier(2, settings={"epochs": 2, "width": 8}, device="cpu")
    model.partial_fit(bright, [0] * 40)
    first = dict(model.asked.settings)
    assert first["mean"] == [pytest.approx(bright.mean() / 255, abs=1e-3)]
    model.partial_fit(bright // 4, [1] * 40)
    assert model.asked.settings == first


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"classes": 1}, "at least two"),
        ({"classes": ["a", "a"]}, "each once"),
        ({"classes": "abc"}, "a list of whole numbers or of words"),
        ({"classes": [0.5, 1.5]}, "a list of whole numbers or of words"),
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
    with pytest.raises(UsageError, match="label 10 is none of the 10 classes"):
        model.partial_fit(images[:2], [3, 10])
    with pytest.raises(UsageError, match="one label per image"):
        model.partial_fit(images[:2], [3])
    with pytest.raises(UsageError, match="empty"):
        model.partial_fit(images[:0], [])
    assert len(model.history) == 1


def test_only_classifiers_are_loaded(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no classifier"):
        LifelongClassifier.load(tmp_path / "nowhere", device="cpu")
    images, labels = tasks(stream)[0]
    run_folder = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        run(Experiment(stream, "er", 30, settings=SETTINGS), out=run_folder, checkpoint_seconds=0, watch=Stop(3))
    with pytest.raises(UsageError, match="something else"):
        LifelongClassifier.load(next(run_folder.iterdir()), device="cpu")
    model = LifelongClassifier(10, "er", buffer=30, settings=SETTINGS, device="cpu").partial_fit(images, labels)
    model.save(tmp_path / "model")
    first = model.predict_proba(images)
    model.partial_fit(*tasks(stream)[1])
    model.save(tmp_path / "model")
    newest = max((tmp_path / "model").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    with pytest.warns(RunWarning, match="damaged: going on from the one before"):
        older = LifelongClassifier.load(tmp_path / "model", device="cpu")
    assert np.array_equal(older.predict_proba(images), first)


def test_the_example_in_its_docstring_runs() -> None:
    import doctest

    from scommer import lifelong

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert doctest.testmod(lifelong) == (0, 4)
