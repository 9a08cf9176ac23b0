"""Experiments resolved to plans: names, own streams, bad values."""

import numpy as np
import pytest

from scommer import Experiment, class_il, run
from scommer.errors import UsageError
from scommer.experiment import prepare

LABELS = np.arange(120) % 4
IMAGES = (np.random.default_rng(0).random((120, 8, 8)) * 255).astype(np.uint8)


@pytest.mark.parametrize("name", ["../escape", "/absolute", "a/b", "x\0y", "", "-x", "..", "with space"])
def test_a_run_stays_in_its_folder_whatever_its_stream_is_called(name: str) -> None:
    plan = prepare(Experiment(class_il((IMAGES, LABELS), 2, name=name), "sgd"))
    assert "/" not in plan.name
    assert "\0" not in plan.name
    assert plan.name[0] not in ".-"
    assert plan.facts["stream"] == name


@pytest.mark.parametrize("name", ["default", "s-cifar10", "mine"])
def test_an_own_stream_is_fitted_whatever_it_is_called(name: str) -> None:
    stream = class_il((IMAGES, LABELS), 2, name=name)
    settings = prepare(Experiment(stream, "scommer", 20)).settings
    assert settings["network"] == "small"
    train = stream.data.train_images.numpy() / 255
    assert settings["mean"] == [pytest.approx(train.mean(), abs=1e-3)]
    assert settings["std"] == [pytest.approx(train.std(), abs=1e-3)]
    assert settings["warmup"] == 12  # of 20 epochs
    assert prepare(Experiment(stream, "der++", 20)).settings["alpha"] == 0.1  # not a decay there
    assert prepare(Experiment(stream, "scommer", settings={"network": "mlp"})).settings["network"] == "mlp"


def test_a_held_out_share_is_in_the_record() -> None:
    stream = class_il((IMAGES, LABELS), 2, validation=0.25)
    record = run(Experiment(stream, "sgd", settings={"epochs": 1, "width": 4}))
    assert record.experiment["validation"] == 0.25
    with pytest.raises(UsageError, match="when it is made"):
        run(Experiment(stream, "sgd", validation=0.1))


@pytest.mark.parametrize(
    "wrong",
    [{"stream": 3}, {"method": None}, {"buffer": "3"}, {"seed": "a"}, {"seed": 0.5}, {"seed": -1},
     {"settings": None}, {"settings": ["lr"]}],
)  # fmt: skip
def test_values_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Experiment(**{"stream": "s-digits", **wrong})  # type: ignore[arg-type]


def test_numpy_numbers_are_numbers() -> None:
    settings = {"epochs": np.int64(3), "lr": np.float32(0.5)}
    plan = prepare(Experiment("s-digits", "er", np.int64(20), np.int64(1), settings=settings))
    assert plan.name.startswith("s-digits-er-20-seed1-")  # which is JSON's business too
    assert (plan.settings["epochs"], plan.settings["lr"], plan.facts["buffer"]) == (3, 0.5, 20)
