"""Experiments and their plans: names, your own streams, invalid values."""

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from scommer import Experiment, Stream, Task, class_il, from_arrays, load_records, run
from scommer.engine.learner import Learner
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.runs.experiment import ADDED, Plan, prepare
from scommer.runs.record import Record
from scommer.runs.settings import as_dict
from scommer.streams import STREAMS, load

ROOT = Path(__file__).parents[2]
LABELS = np.arange(120) % 4
IMAGES = (np.random.default_rng(0).random((120, 8, 8)) * 255).astype(np.uint8)


@pytest.mark.parametrize("name", ["../escape", "/absolute", "a/b", "x\0y", "", "-x", "..", "with space"])
def test_the_name_of_a_run_is_a_safe_folder_name_for_any_stream_name(name: str) -> None:
    plan = prepare(Experiment(class_il((IMAGES, LABELS), 2, name=name), "sgd"))
    assert "/" not in plan.name
    assert "\0" not in plan.name
    assert plan.name[0] not in ".-"
    assert plan.facts["stream"] == name


@pytest.mark.parametrize("name", ["default", "s-cifar10", "mine"])
def test_settings_of_your_own_stream_follow_its_images_whatever_its_name(name: str) -> None:
    stream = class_il((IMAGES, LABELS), 2, name=name)
    settings = prepare(Experiment(stream, "scommer", 20)).settings
    assert settings["network"] == "small"
    train = stream.data.train_images.numpy() / 255
    assert settings["mean"] == [pytest.approx(train.mean(), abs=1e-3)]
    assert settings["std"] == [pytest.approx(train.std(), abs=1e-3)]
    assert settings["warmup"] == 12  # of 20 epochs
    assert prepare(Experiment(stream, "der++", 20)).settings["alpha"] == 0.1  # not a decay there
    assert prepare(Experiment(stream, "scommer", settings={"network": "mlp"})).settings["network"] == "mlp"


def test_settings_of_a_named_stream_without_presets_follow_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STREAMS, "s-digits-2", ("digits", partial(class_il, tasks=2)))
    named = prepare(Experiment("s-digits-2", "scommer", 20))
    own = prepare(Experiment(load("s-digits-2"), "scommer", 20))
    assert named.fitted
    assert named.settings == own.settings
    assert named.settings["network"] == "small"
    assert not prepare(Experiment("s-digits", "scommer", 20)).fitted


@pytest.mark.parametrize(
    ("shape", "network"), [((8, 16), "small"), ((16, 16), "small"), ((8, 17), "resnet18"), ((30,), "mlp")]
)
def test_the_network_of_a_stream_without_presets_follows_the_size_of_its_images(
    shape: tuple[int, ...], network: str
) -> None:
    images = np.random.default_rng(0).random((120, *shape))
    assert prepare(Experiment(class_il((images, LABELS), 2), "sgd")).settings["network"] == network


@pytest.mark.parametrize("method", METHODS)
def test_only_a_method_that_replays_has_a_buffer(method: str) -> None:
    plans = [prepare(Experiment("s-digits", method, buffer)) for buffer in (20, 40)]
    replays = method not in ("sgd", "joint", "ewc", "lwf", "ncm", "slda")
    assert [plan.facts["buffer"] for plan in plans] == ([20, 40] if replays else [None, None])
    assert len({plan.name for plan in plans}) == (2 if replays else 1)


@pytest.mark.parametrize(("epochs", "alpha"), [(200, 0.9958), (1, 0.9), (100_000, 0.999)])
def test_the_decay_of_a_stream_without_presets_follows_the_steps_of_a_task(epochs: int, alpha: float) -> None:
    stream = class_il((IMAGES, LABELS), 2)  # of 48 images each: 6 steps an epoch; 1 - 5/1200 = 0.99583
    for method in ("scommer", "cls-er"):
        settings = prepare(Experiment(stream, method, 20, settings={"epochs": epochs, "batch": 8})).settings
        assert settings["alpha"] == alpha


def test_the_steps_of_a_task_are_those_that_it_will_take() -> None:
    stream = class_il((IMAGES, LABELS), 2)  # of 48 images each: one batch of 32 an epoch, the rest is dropped
    for settings, alpha in (
        ({"epochs": 100}, 0.95),
        ({"min_steps": 400}, 0.9875),
        ({"epochs": 50, "min_steps": 400}, 0.9875),
    ):
        assert prepare(Experiment(stream, "scommer", 20, settings=settings)).settings["alpha"] == alpha


def test_resnet18_learns_your_own_images_slowly_enough() -> None:
    x = np.random.default_rng(0).random((96, 17, 17))
    for settings, lr in (({}, 0.03), ({"lr": 0.5}, 0.5), ({"network": "small"}, 0.1)):
        for method in ("scommer", "er"):
            assert prepare(Experiment(class_il((x, LABELS[:96]), 2), method, settings=settings)).settings["lr"] == lr
    small = class_il((IMAGES, LABELS), 2)
    assert prepare(Experiment(small, settings={"network": "resnet18"})).settings["lr"] == 0.03


@pytest.mark.parametrize(("network", "warned"), [(None, True), ("resnet18", False), ("small", False)])
def test_a_slow_network_that_nobody_chose_is_a_hint(network: str | None, warned: bool) -> None:
    x = np.random.default_rng(0).random((96, 17, 17))
    plan = prepare(Experiment(class_il((x, LABELS[:96]), 2), settings={"network": network} if network else {}))
    assert any("network=small" in hint for hint in plan.slow_on(torch.device("cpu"))) == warned
    assert plan.slow_on(torch.device("cuda")) == []


def test_a_method_without_variants_is_the_same_under_any_name() -> None:
    plans = [prepare(Experiment("s-digits", "er", variant=v)) for v in ("", "official", "plus")]
    assert len({plan.name for plan in plans}) == 1
    assert len({prepare(Experiment("s-digits", variant=v)).name for v in ("", "official", "plus")}) == 2
    with pytest.raises(UsageError, match="unknown variant 'plos'"):
        Experiment("s-digits", "er", variant="plos")


def test_mirror_images_that_training_never_saw_are_a_warning() -> None:
    for flip in (True, False):
        plan = prepare(Experiment("s-digits", "er", settings={"mirrored": True, "flip": flip}))
        assert any("mirror images" in w for w in plan.warnings) != flip


def test_records_of_streams_without_presets_hold_the_given_settings() -> None:
    stream = class_il((IMAGES, LABELS), 2)
    record = run(Experiment(stream, "sgd", settings={"epochs": 1, "width": 4}))
    assert record.experiment.given == {"epochs": 1, "width": 4}
    assert run(Experiment("s-digits", "sgd", settings={"epochs": 1, "width": 4})).experiment.given is None


def test_a_task_that_cannot_be_learned_or_scored_is_refused_before_training() -> None:
    data = from_arrays(IMAGES, LABELS)
    n, m = len(data.train_labels), len(data.test_labels)

    def stream(*tasks: Task) -> Stream:
        return Stream("mine", "class-il", data, tasks)

    whole = Task(range(n), np.arange(m), (0, 1, 2, 3))  # type: ignore[arg-type]
    assert run(Experiment(stream(whole), "sgd", settings={"epochs": 1, "width": 4})).matrix().shape == (1, 1)
    for wrong, words in (
        (lambda: stream(), "has no tasks"),
        (lambda: stream(whole, replace(whole, train=[])), "task 2 of mine has no training images"),
        (
            lambda: stream(replace(whole, train=[n])),
            rf"training images from {n} to {n}, but the data set has those from 0 to {n - 1}",
        ),
        (lambda: stream(replace(whole, test=[-1])), "test images from -1 to -1"),
        (lambda: stream(replace(whole, classes=(0, 4))), "classes from 0 to 4"),
        (lambda: stream(replace(whole, classes=(0, 1))), "has images of class 2: add it to the classes"),
        (lambda: replace(whole, classes=()), "a task has no classes"),
        (lambda: replace(whole, classes=(0, 1.5)), "give a tuple of integers"),
        (lambda: Stream("mine", "GCIL", data, (whole,)), "unknown kind of stream 'GCIL'"),  # type: ignore[arg-type]
        (lambda: Stream("mine", "gcil", (IMAGES, LABELS), (whole,)), "by from_arrays"),  # type: ignore[arg-type]
        (lambda: Stream("mine", "gcil", data, whole), "a tuple of Task"),  # type: ignore[arg-type]
        (lambda: replace(whole, train=slice(3)), "give a list of integers"),
        (lambda: replace(whole, train=[0.5]), "give a list of integers"),
        (lambda: replace(whole, test=[[1, 2]]), "give a list of integers"),
        (lambda: run(Experiment(stream(replace(whole, test=[])), "sgd")), "task 1 of mine has no test images"),
    ):
        with pytest.raises(UsageError, match=words):
            wrong()  # type: ignore[no-untyped-call]


def test_the_held_out_fraction_is_in_the_record() -> None:
    stream = class_il((IMAGES, LABELS), 2, validation=0.25)
    record = run(Experiment(stream, "sgd", settings={"epochs": 1, "width": 4}))
    assert record.experiment.validation == 0.25
    with pytest.raises(UsageError, match=r"class_il\(\.\.\., validation=0\.1\)"):
        run(Experiment(stream, "sgd", validation=0.1))


@pytest.mark.parametrize(
    "wrong",
    [{"stream": 3}, {"method": None}, {"buffer": "3"}, {"seed": "a"}, {"seed": 0.5}, {"seed": -1},
     {"settings": None}, {"settings": ["lr"]}],
)  # fmt: skip
def test_invalid_values_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Experiment(**{"stream": "s-digits", **wrong})  # type: ignore[arg-type]


def test_numpy_numbers_are_accepted() -> None:
    settings = {"epochs": np.int64(3), "lr": np.float32(0.5)}
    plan = prepare(Experiment("s-digits", "er", np.int64(20), np.int64(1), settings=settings))
    assert plan.name.startswith("s-digits-er-20-seed1-")  # which is JSON's business too
    assert (plan.settings["epochs"], plan.settings["lr"], plan.facts["buffer"]) == (3, 0.5, 20)


def test_a_run_with_numpy_numbers_writes_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    stream = class_il((IMAGES, LABELS), 2, validation=np.float32(0.25))
    record = run(Experiment(stream, "sgd", settings={"epochs": np.int64(1), "width": np.int32(4)}), out="~/runs")
    found = Record.load(tmp_path / "runs" / record.name)
    assert found.experiment.given == {"epochs": 1, "width": 4}
    assert found.experiment.validation == 0.25
    assert [r.name for r in load_records("~/runs")] == [record.name]
    held_out = {"validation": np.float32(0.25), "settings": {"epochs": 1, "width": 4}}
    assert run(Experiment("s-digits", "sgd", **held_out), out="~/runs").experiment.validation == 0.25
    with pytest.raises(UsageError, match="validation = 'much' is invalid"):
        Experiment("s-digits", validation="much")  # type: ignore[arg-type]


def test_the_place_is_always_a_task_and_an_epoch_of_the_run() -> None:
    """Even at the end of a task's last epoch and of the last task."""
    plan = prepare(Experiment("s-digits", "sgd", settings={"epochs": 2, "width": 4}))
    learner = Learner(plan.stream, plan.method, plan.training, device="cpu")
    places = [(learner.place, learner.tasks_learned) for moment in learner.learn() if moment != "step"]
    tasks = range(1, 6)
    assert places == [p for t in tasks for p in (((t, 2), t - 1), ((t, 2), t - 1), ((min(t + 1, 5), 1), t))]


@pytest.mark.parametrize(
    "settings",
    [
        {"balanced": True},
        {"horizon": 0.5},
        {"recent": 0.1},
        {"balance": 1.0},
        {"teach": 0.1},
        {"teacher": "snapshot"},
        {"turned": 0.3},
    ],
    ids=str,
)
def test_every_setting_that_came_later_is_in_the_name_unless_it_does_nothing(settings: dict[str, Any]) -> None:
    usual, default, other = (
        prepare(Experiment("s-digits", "scommer", 20, settings=s)).name
        for s in ({}, {name: ADDED[name] for name in settings}, settings)
    )
    assert usual == default == "s-digits-scommer-20-seed0-" + usual[-6:]
    assert other != usual


def test_runs_have_the_names_that_they_always_had() -> None:
    """As in results/: a later version continues and finds them."""
    found = set()
    for path in sorted((ROOT / "results").glob("s-cifar10-*-seed0-*")):
        record = Record.load(path)
        e, method = record.experiment, METHODS.get(record.experiment.method)
        if method is None or e.variant != "official":
            continue
        stream = SimpleNamespace(name=e.stream, validation=e.validation, fingerprint=record.stream.fingerprint)
        given = {name: tuple(v) if isinstance(v, list) else v for name, v in record.settings.items()}
        names = {kind: {f.name for f in fields(kind)} for kind in (method, Training)}
        made, training = (kind(**{k: v for k, v in given.items() if k in names[kind]}) for kind in names)
        experiment = Experiment(e.stream, e.method, e.buffer or 200, e.seed)
        plan = Plan(experiment, stream, made, training, as_dict(made, training))  # type: ignore[arg-type]
        assert plan.name == path.name
        found.add(e.method)
    assert {"scommer", "er", "der++", "sgd"} <= found


def test_epochs_that_do_not_fit_a_preset_are_warned_about() -> None:
    """Nine steps a task, where long-term memory of the preset averages over 1 / (0.5 · 0.03) = 67."""
    plans = {
        n: prepare(Experiment("s-digits", "scommer", 50, settings={"epochs": n} if n else {})) for n in (0, 1, 5, 20)
    }
    assert not plans[0].warnings
    assert not plans[20].warnings
    assert any("averages over about 67 steps (alpha = 0.97), but a task has 9" in w for w in plans[1].warnings)
    whole = prepare(Experiment("s-digits", "scommer", 50, settings={"batch": 10_000}))  # a step is an epoch
    assert any("averages over about 67 steps (alpha = 0.97), but a task has 20" in w for w in whole.warnings)
    for name in ("warmup", "alpha"):  # what is advised helps
        (advice,) = (w.rpartition(f"or {name}=")[2] for w in plans[5].warnings if f"or {name}=" in w)
        settings = {"epochs": 5, name: float(advice)}
        assert not any(name in w for w in prepare(Experiment("s-digits", "scommer", 50, settings=settings)).warnings)
    assert not prepare(Experiment("s-digits", "er", 50, settings={"epochs": 1})).warnings
