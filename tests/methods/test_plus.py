"""What the variant plus adds to the loss, by hand."""

import pytest
import torch

from scommer.methods.plus import strength


@pytest.mark.parametrize(
    ("balance", "steps", "expected"),
    [
        (2.0, 15_600, 2.0),  # S-CIFAR10
        (2.0, 1400, 2.0),
        (2.0, 1050, 1.5),
        (2.0, 700, 1.0),
        (2.0, 30, 1.0),
        (1.0, 30, 1.0),  # your own data
        (1.0, 50_000, 1.0),
        (0.5, 30, 0.5),
        (0.5, 50_000, 0.5),
        (0.0, 30, 0.0),
    ],
)
def test_a_short_task_is_corrected_exactly_and_a_long_one_more(balance: float, steps: int, expected: float) -> None:
    assert strength(balance, torch.tensor(float(steps))).item() == pytest.approx(expected)
