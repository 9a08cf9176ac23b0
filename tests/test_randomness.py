"""Each role of each seed draws its own numbers."""

from itertools import combinations

import torch

from scommer.randomness import derive, generator

ROLES = ("network", "order", "augment", "episodic", "coin", "code", "after_task/0", "after_task/1")


def draws(seed: int, role: str) -> torch.Tensor:
    return torch.rand(4000, generator=generator(seed, role), dtype=torch.float64)


def test_roles_and_seeds_draw_unrelated_numbers() -> None:
    drawn = [draws(seed, role) for seed in (0, 1, 11) for role in ROLES]
    for a, b in combinations(drawn, 2):
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.08  # five deviations of 1/√4000


def test_the_same_role_of_the_same_seed_draws_the_same_numbers() -> None:
    before = torch.get_rng_state()
    assert torch.equal(draws(3, "order"), draws(3, "order"))
    assert torch.equal(torch.get_rng_state(), before)
    assert derive(3, "order") == 0x6F23B470C30465  # of sha256("3/order"): committed records depend on it
