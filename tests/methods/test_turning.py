"""Turned images as classes of their own, against NumPy."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from scommer import Experiment, LifelongClassifier, class_il, from_arrays, run
from scommer.engine.learner import Learner
from scommer.engine.state import restore, state_of
from scommer.errors import UsageError
from scommer.methods.scommer import SCoMMER
from scommer.methods.turning import Turning, over_turns
from scommer.nn import networks
from scommer.nn.networks import NETWORKS, Architecture
from scommer.nn.turned_head import TurnedHead
from scommer.runs.experiment import prepare


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def turning(share: float, shape: tuple[int, int, int] = (3, 5, 5), classes: int = 4) -> Turning:
    return Turning(share, torch.zeros(shape), classes, seeded(1))


def test_each_image_is_turned_as_its_label_says() -> None:
    x, y = torch.randn(400, 3, 5, 5, generator=seeded()), torch.randint(4, (400,), generator=seeded(2))
    turned, target = turning(0.5)(x, y)
    assert torch.equal(target % 4, y)
    for image, made, turns in zip(x.numpy(), turned.numpy(), (target // 4).tolist(), strict=True):
        assert np.array_equal(made, np.rot90(image, turns, (1, 2)))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_is_turned_and_each_turn_is_as_frequent(share: float) -> None:
    _, target = turning(share)(torch.zeros(30_000, 3, 5, 5), torch.zeros(30_000, dtype=torch.int64))
    found = (torch.bincount(target // 4, minlength=4) / 30_000).tolist()
    assert found == pytest.approx([1 - share, *[share / 3] * 3], abs=0.01)


def test_a_value_of_a_class_counts_for_all_its_turns() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    _, target = turning(0.8)(torch.zeros(50, 3, 5, 5), torch.arange(50) % 4)
    assert over_turns(values)[target].tolist() == values[torch.arange(50) % 4].tolist()


def test_at_inference_there_are_the_upright_classes_only() -> None:
    head = TurnedHead(6, 4)
    head.turned.reset_parameters()
    x = torch.randn(5, 6, generator=seeded())
    upright = x @ head.weight.T + head.bias
    assert torch.allclose(head.eval()(x), upright, atol=1e-6)
    z = head.train()(x)
    assert torch.allclose(z[:, :4], upright, atol=1e-6)
    for k in range(3):
        w, b = head.turned.weight[k], head.turned.bias[k]
        assert torch.allclose(z[:, 4 * (k + 1) : 4 * (k + 2)], x @ w.T + b, atol=1e-6)


def test_the_rest_of_the_network_starts_as_without_it() -> None:
    plain, wide = (networks.build("small", (1, 8, 8), 4, seeded(), turned=turned) for turned in (False, True))
    start = wide.state_dict()
    assert all(torch.equal(t, start[name]) for name, t in plain.state_dict().items())
    weight = start["head.turned.weight"]
    bound = weight.shape[-1] ** -0.5
    assert 0.9 * bound < weight.abs().max() <= bound
    assert len({tuple(rows.flatten().tolist()) for rows in weight}) == 3


def test_of_own_data_only_square_images_of_long_tasks_are_turned() -> None:
    r = np.random.default_rng(0)
    y = np.arange(64) % 4
    long, short = {"epochs": 400}, {"epochs": 399}  # 32 images of a task are a step, with a learning rate of 0.1
    slow = {"network": "resnet18"}  # learns with 0.03
    for shape, settings, share in (
        ((8, 8), long, 0.5),
        ((32, 32, 3), {"epochs": 1334}, 0.5),
        ((8, 8), {"epochs": 1334, **slow}, 0.5),
        ((8, 8), {"epochs": 1333, **slow}, 0.0),
        ((8, 8), {**short, "lr": 0.2}, 0.5),
        ((8, 8), short, 0.0),
        ((32, 24), long, 0.0),
        ((32,), long, 0.0),
        ((8, 8), long | {"network": "mlp"}, 0.0),
        ((8, 8), short | {"turned": 0.1}, 0.1),
    ):
        stream = class_il(from_arrays(r.random((64, *shape)), y, r.random((4, *shape)), np.arange(4)), tasks=2)
        assert prepare(Experiment(stream, settings=settings)).settings["turned"] == share
        assert prepare(Experiment(stream, variant="official", settings=long)).settings["turned"] == 0
    for classes, share in ((10, 0.5), (12, 0.0)):  # five and six per task
        y = np.arange(120) % classes
        stream = class_il(from_arrays(r.random((120, 8, 8)), y, r.random((12, 8, 8)), np.arange(12) % classes), tasks=2)
        assert prepare(Experiment(stream, settings=long)).settings["turned"] == share
    y = np.arange(24) % 4
    with pytest.raises(UsageError, match="images of 8 × 6 pixels cannot be turned, only square ones: set turned=0"):
        LifelongClassifier(settings={"turned": 0.5, "epochs": 1}, device="cpu").fit(r.random((24, 8, 6)), y)


def test_upright_images_are_never_the_rarest() -> None:
    with pytest.raises(UsageError, match=r"turned = 0\.8 is invalid: expected a number from 0 to 0\.75"):
        SCoMMER(turned=0.8)


def test_the_network_must_have_a_plain_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cosine(nn.Linear): ...

    heads = (Cosine(9, 4), nn.Linear(9, 4, bias=False), nn.Sequential(nn.Linear(9, 4)), None)
    for head in heads:

        class Own(nn.Module):
            units = ()

            def __init__(self, head: nn.Module | None = head) -> None:
                super().__init__()
                if head is not None:
                    self.head = head

        make = Architecture(lambda shape, classes, kind=Own, **_: kind(), 1, 1, 1)
        monkeypatch.setitem(NETWORKS, "own", make)
        networks.build("own", (1, 3, 3), 4, seeded())
        with pytest.raises(UsageError, match="network own is no plain linear one, as turned images need: set turned=0"):
            networks.build("own", (1, 3, 3), 4, seeded(), turned=True)


def test_two_classes_and_their_turns_are_not_reported_as_diverging() -> None:
    """The loss of guessing is that of eight classes."""
    r = np.random.default_rng(0)
    data = from_arrays(r.random((64, 8, 8)), np.arange(64) % 2, r.random((4, 8, 8)), np.arange(4) % 2)
    settings = {"network": "small", "width": 4, "epochs": 1, "turned": 0.6, "lr": 1e-3, "balance": 0.0, "warmup": 0}
    plan = prepare(Experiment(class_il(data, 2), settings=settings))
    learner = Learner(plan.stream, plan.method, plan.training, buffer=20)
    for _ in learner.learn():
        pass
    assert learner.curve[-1] > 5 * math.log(2)  # two cross-entropies, of replay and of the task
    assert learner.divergence() is None
    resumed = Learner(plan.stream, plan.method, plan.training, buffer=20)
    restore(resumed, *state_of(learner))
    assert resumed.divergence() is None


def test_a_record_has_no_scores_of_turned_classes(tmp_path) -> None:
    quick = {"epochs": 1, "width": 4, "turned": 0.3}
    record = run(Experiment("s-digits", variant="plus", settings=quick), out=tmp_path)
    assert record.arrays["class_accuracy/long_term"].shape == (5, 10)
    assert 0 < record.accuracy("long_term", "task_il") <= 100
