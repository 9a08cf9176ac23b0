"""Reservoir sampling in batches against Vitter's algorithm R, which takes one example at a time."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from scommer.errors import UsageError
from scommer.memory import EpisodicMemory


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def memory(capacity, generator=None, **extra):
    example = {"x": torch.zeros((), dtype=torch.int64), **extra}
    return EpisodicMemory(capacity, example, generator or seeded())


def offer(episodic, n, batches, start=0):
    """Offer the numbers start … start + n - 1 in batches whose sizes cycle through `batches`."""
    sizes = []
    while sum(sizes) < n:
        sizes.append(min(batches[len(sizes) % len(batches)], n - sum(sizes)))
    for numbers in torch.arange(start, start + n).split(sizes):
        episodic.remember(x=numbers)


def held(episodic):
    return episodic.tensors()["x"].tolist()


def algorithm_r(n, capacity, draw):
    """Vitter's algorithm R; `draw(i)` is uniform on 0 … i."""
    slots = list(range(capacity))
    for i in range(capacity, n):
        j = draw(i)
        if j < capacity:
            slots[j] = i
    return slots


def chi_square(counts, probabilities):
    total = sum(counts.values())
    assert set(counts) <= set(probabilities)
    return sum((counts[k] - total * p) ** 2 / (total * p) for k, p in probabilities.items())


def limit(cells):
    return cells - 1 + 5 * np.sqrt(2 * (cells - 1))


# --- remember


@pytest.mark.parametrize("batches", [[1], [3], [4, 2], [7]])
def test_the_first_examples_fill_the_slots_in_order(batches):
    episodic = memory(10)
    offer(episodic, 7, batches)
    assert held(episodic)[:7] == list(range(7))
    offer(episodic, 3, batches, start=7)
    assert held(episodic) == list(range(10))
    assert episodic.seen == 10
    assert [episodic.held(n) for n in (0, 7, 10, 99)] == [0, 7, 10, 10]


@pytest.mark.parametrize(("batches", "runs"), [([1], 600), ([2, 5], 1200), ([8], 1500), ([24], 3000)])
def test_every_example_is_kept_equally_often(batches, runs):
    n, capacity, g = 24, 6, seeded(1)
    kept, slot_counts = Counter(), Counter()
    for _ in range(runs):
        episodic = memory(capacity, g)
        offer(episodic, n, batches)
        slots = held(episodic)
        assert len(set(slots)) == capacity  # each number was offered once
        kept.update(slots)
        slot_counts.update(enumerate(slots))
    for i in range(n):  # each with probability capacity / n
        assert abs(kept[i] / runs - 1 / 4) < 5 * np.sqrt(1 / 4 * 3 / 4 / runs), i
    # In algorithm R, a slot ends with its first example with probability capacity / n, with any later one with 1 / n.
    exact = {(s, i): (capacity / n if i == s else 1 / n) / capacity for s in range(capacity) for i in (s, *range(6, n))}
    assert chi_square(slot_counts, exact) < limit(len(exact))


@pytest.mark.parametrize("batches", [[5], [1], [2, 3], [3, 2], [4, 1]])
def test_contents_have_the_distribution_of_algorithm_r(batches):
    runs, g = 2500, seeded(2)
    outcomes = [algorithm_r(5, 2, lambda i, d=draws: d[i - 2]) for draws in product(range(3), range(4), range(5))]
    exact = {state: count / 60 for state, count in Counter(map(tuple, outcomes)).items()}
    assert exact[0, 1] == pytest.approx(1 / 3 * 2 / 4 * 3 / 5)  # nothing overwritten
    found = Counter()
    for _ in range(runs):
        episodic = memory(2, g)
        offer(episodic, 5, batches)
        found[tuple(held(episodic))] += 1
    assert chi_square(found, exact) < limit(len(exact))


def test_within_a_batch_later_examples_overwrite_earlier_ones():
    runs, g, rng = 4000, seeded(3), random.Random(0)
    ours, theirs = Counter(), Counter()
    for _ in range(runs):
        episodic = memory(1, g)
        episodic.remember(x=torch.arange(4))
        ours.update(held(episodic))
        theirs.update(algorithm_r(4, 1, lambda i: rng.randint(0, i)))
    uniform = dict.fromkeys(range(4), 1 / 4)
    assert chi_square(theirs, uniform) < limit(4)
    assert chi_square(ours, uniform) < limit(4)  # if earlier examples stayed, they would be too frequent


def test_the_sample_of_a_long_stream_is_uniform():
    kept = np.zeros(40)
    g = seeded(4)
    for _ in range(60):
        episodic = memory(50, g)
        offer(episodic, 4000, [32])
        kept += np.histogram(held(episodic), 40, (0, 4000))[0]
    expected = 60 * 50 / 40
    assert ((kept - expected) ** 2 / expected).sum() < limit(40)


def test_examples_offered_again_count_again():
    episodic = memory(4)
    for _ in range(3):
        offer(episodic, 10, [5])
    assert episodic.seen == 30


def test_fields_of_an_example_stay_together():
    episodic = EpisodicMemory(
        8,
        {"x": torch.zeros(2, 3, dtype=torch.uint8), "y": torch.tensor(0), "logits": torch.zeros(4)},
        seeded(5),
    )
    for numbers in torch.arange(1, 201).split(16):
        episodic.remember(
            logits=numbers[:, None] * torch.tensor([1.0, 2.0, 3.0, 4.0]),
            y=numbers * 7,
            x=numbers[:, None, None].expand(-1, 2, 3).to(torch.uint8),
        )
    for state in (episodic.tensors(), episodic.recall(5)):
        number = state["y"] // 7
        assert number.min() > 0
        assert (state["x"] == number[:, None, None]).all()
        assert torch.equal(state["logits"], number[:, None] * torch.tensor([1.0, 2.0, 3.0, 4.0]))
        assert (state["x"].dtype, state["logits"].dtype) == (torch.uint8, torch.float32)


# --- recall


@pytest.mark.parametrize(("offered", "n"), [(3, 3), (3, 1), (6, 4), (6, 6), (20, 5)])
def test_recalled_examples_are_distinct_and_uniform_over_filled_slots(offered, n):
    episodic, runs, filled = memory(6), 1500, min(6, offered)
    offer(episodic, offered, [4], start=100)
    drawn, pairs = Counter(), 0
    stored = set(held(episodic)[:filled])
    for _ in range(runs):
        numbers = episodic.recall(n)["x"].tolist()
        assert len(set(numbers)) == n
        assert set(numbers) <= stored
        drawn.update(numbers)
        pairs += set(sorted(stored)[:2]) <= set(numbers)
    p, both = n / filled, n * (n - 1) / (filled * (filled - 1))
    assert all(abs(drawn[i] / runs - p) <= 5 * np.sqrt(p * (1 - p) / runs) for i in stored)
    assert abs(pairs / runs - both) <= 5 * np.sqrt(both * (1 - both) / runs)


def test_recall_leaves_the_memory_unchanged():
    episodic = memory(6)
    offer(episodic, 20, [4])
    before = held(episodic)
    recalled = episodic.recall(6)["x"]
    recalled.zero_()  # a copy
    assert held(episodic) == before
    assert episodic.seen == 20


def test_draws_use_only_the_given_generator():
    global_state = torch.get_rng_state()
    episodic, same, other = (memory(5, seeded(s)) for s in (1, 1, 2))
    for m in (episodic, same, other):
        offer(m, 200, [8])
    assert held(episodic) == held(same) != held(other)
    assert episodic.recall(5)["x"].tolist() == same.recall(5)["x"].tolist()
    assert torch.equal(torch.get_rng_state(), global_state)


def test_a_restored_memory_continues_identically():
    whole = memory(7, seeded(1))
    offer(whole, 50, [4])
    whole.recall(3)
    saved = {name: t.clone() for name, t in whole.tensors().items()}
    state = whole.generator.get_state()
    resumed = memory(7, seeded(2))
    offer(resumed, 11, [3], start=500)
    for name, live in resumed.tensors().items():
        live.copy_(saved[name])
    resumed.generator.set_state(state)
    for m in (whole, resumed):
        offer(m, 60, [8], start=50)
    assert held(whole) == held(resumed) != saved["x"].tolist()
    assert whole.recall(5)["x"].tolist() == resumed.recall(5)["x"].tolist()
    assert whole.seen == resumed.seen == 110


# --- errors


@pytest.mark.parametrize("capacity", [0, -3])
def test_a_capacity_below_1_is_an_error(capacity):
    with pytest.raises(UsageError, match=f"buffer = {capacity}"):
        memory(capacity)


def test_missing_or_unknown_fields_are_an_error():
    episodic = memory(3, y=torch.tensor(0))
    one = torch.tensor([1])
    for batch in ({"x": one}, {"x": one, "y": one, "logits": one}, {"x": one, "z": one}):
        with pytest.raises(UsageError, match=f"x, y, .* {', '.join(batch)}$"):
            episodic.remember(**batch)
    assert episodic.seen == 0
