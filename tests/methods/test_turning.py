"""Turned images as classes of their own, against NumPy."""

import numpy as np
import pytest
import torch

from scommer import Experiment, LifelongClassifier, class_il, run
from scommer.errors import UsageError
from scommer.methods.turning import Turning, over_turns
from scommer.nn import networks
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


def test_of_own_data_only_square_images_that_are_not_small_are_turned() -> None:
    r = np.random.default_rng(0)
    y = np.arange(24) % 4
    for shape, share in (((17, 17), 0.3), ((32, 32, 3), 0.3), ((16, 16), 0.0), ((32, 24), 0.0), ((32,), 0.0)):
        x = r.random((24, *shape))
        stream = class_il((x, y), tasks=2, name="own")
        assert prepare(Experiment(stream)).settings["turned"] == share
        assert prepare(Experiment(stream, variant="official")).settings["turned"] == 0
    with pytest.raises(UsageError, match="images of 8 × 6 pixels cannot be turned, only square ones: set turned=0"):
        LifelongClassifier(settings={"turned": 0.5, "epochs": 1}, device="cpu").fit(r.random((24, 8, 6)), y)


def test_a_record_has_no_scores_of_turned_classes(tmp_path) -> None:
    quick = {"epochs": 1, "width": 4, "turned": 0.3}
    record = run(Experiment("s-digits", variant="plus", settings=quick), out=tmp_path)
    assert record.arrays["class_accuracy/long_term"].shape == (5, 10)
    assert 0 < record.accuracy("long_term", "task_il") <= 100
