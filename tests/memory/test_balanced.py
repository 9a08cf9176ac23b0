"""Balanced memory in batches against a plain rule over all examples ever offered."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from scommer.memory import BalancedMemory


def memory(capacity: int, seed: int = 0) -> BalancedMemory:
    number = torch.zeros((), dtype=torch.int64)
    return BalancedMemory(capacity, {"x": number, "y": number}, torch.Generator().manual_seed(seed))


def offer(kept: BalancedMemory, y: Tensor, size: int, start: int = 0) -> None:
    for part in torch.arange(len(y)).split(size):
        kept.remember(x=start + part, y=y[part])


def held(kept: BalancedMemory) -> list[tuple[int, int]]:
    fields, n = kept.tensors(), kept.held(int(kept.seen))
    return sorted(zip(fields["y"][:n].tolist(), fields["x"][:n].tolist(), strict=True))


def expected(y: list[int], keys: list[float], capacity: int) -> list[tuple[int, int]]:
    """Deal out slots in rounds: in each round, every class that has an example left gets its next best one.

    In the last round there may be fewer slots than classes: those with the highest keys get one.
    """
    by_class: dict[int, list[tuple[float, int]]] = {}
    for x, (c, key) in enumerate(zip(y, keys, strict=True)):
        by_class.setdefault(c, []).append((key, x))
    kept: list[tuple[int, int]] = []
    for examples in by_class.values():
        examples.sort(reverse=True)
    while len(kept) < capacity and any(by_class.values()):
        now = sorted(((examples[0], c) for c, examples in by_class.items() if examples), reverse=True)
        for (_, x), c in now[: capacity - len(kept)]:
            kept.append((c, x))
            by_class[c].pop(0)
    return sorted(kept)


@pytest.mark.parametrize(("capacity", "size"), [(1, 1), (5, 3), (7, 8), (12, 5), (20, 32), (50, 7)])
def test_what_is_kept_follows_the_rule_after_every_batch(capacity: int, size: int) -> None:
    y = torch.cat([torch.arange(2).repeat(9), torch.tensor([4]), torch.arange(2, 7).repeat(6), torch.zeros(11)]).long()
    draw = torch.Generator().manual_seed(0)  # the memory's own draws, taken apart
    kept, keys, start = memory(capacity), [], 0
    for part in y.split(size):
        kept.remember(x=start + torch.arange(len(part)), y=part)
        keys += torch.rand(len(part), generator=draw, dtype=torch.float64).tolist()
        start += len(part)
        assert held(kept) == expected(y[:start].tolist(), keys, capacity)


def test_classes_share_the_slots_whatever_comes_first_or_most() -> None:
    kept = memory(20)
    for classes, n in (([0, 1], 400), ([2, 3], 40), ([4], 3), ([0], 500), ([5, 6, 7, 8], 80)):
        offer(kept, torch.tensor(classes).repeat(n // len(classes)), 32)
    counts = Counter(c for c, _ in held(kept))
    assert sorted(counts) == list(range(9))
    assert set(counts.values()) == {2, 3}


def test_a_class_with_few_examples_keeps_them_all_and_leaves_the_rest() -> None:
    kept = memory(30)
    offer(kept, torch.tensor([0, 1] * 100 + [2] * 4), 16)
    assert Counter(c for c, _ in held(kept)) == {0: 13, 1: 13, 2: 4}
    assert {x for c, x in held(kept) if c == 2} == set(range(200, 204))


def test_every_example_of_a_class_is_kept_equally_often() -> None:
    """Also those offered before the class had to share."""
    n, runs = 24, 600
    found: Counter[int] = Counter()
    for seed in range(runs):
        kept = memory(8, seed)
        offer(kept, torch.zeros(n, dtype=torch.int64), 5)
        offer(kept, torch.ones(n, dtype=torch.int64), 5, start=100)
        found.update(x for c, x in held(kept) if c == 0)
    share = 4 / n
    deviation = np.sqrt(runs * share * (1 - share))
    assert all(abs(found[x] - runs * share) < 4.5 * deviation for x in range(n))


def test_recall_draws_what_is_held() -> None:
    kept = memory(10)
    offer(kept, torch.tensor([0, 1, 2]), 3)
    drawn = kept.recall(3)
    assert sorted(zip(drawn["y"].tolist(), drawn["x"].tolist(), strict=True)) == held(kept)
