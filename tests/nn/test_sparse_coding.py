"""k-WTA, Eq. 1, Eq. 2 and semantic dropout against loops, NumPy and exact probabilities."""

from decimal import Decimal
from itertools import combinations, permutations

import numpy as np
import pytest
import torch

from scommer.errors import UsageError
from scommer.nn.sparse_coding import (
    Coding,
    SparseCode,
    _select,
    heterogeneous_probability,
    k_wta,
    num_winners,
    per_stage,
    sample_units,
    semantic_probability,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def close_to(p, trials):
    """Return five standard deviations of a frequency with probability p."""
    return 5 * np.sqrt(np.maximum(p * (1 - p), 1e-4) / trials)


# --- k-WTA


def kept_units(x, k):
    """Return whether each unit of a sample is among the k with the highest Σ|x|."""
    scores = [float(np.abs(unit).sum()) for unit in x]
    best = sorted(range(len(scores)), key=lambda j: -scores[j])[:k]
    return [j in best for j in range(len(scores))]


def brute_force(x, k):
    out = np.zeros_like(x)
    for i, sample in enumerate(x):
        for j, wins in enumerate(kept_units(sample, k)):
            if wins:
                out[i, j] = sample[j]
    return out


@pytest.mark.parametrize("shape", [(5, 12), (5, 12, 3, 4), (3, 7, 1, 1), (2, 1, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_the_k_highest_scores_win(shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    for ratio in [*rng.uniform(1 / shape[1], 1, 5), 1.0]:
        k = int(ratio * shape[1])
        out = k_wta(torch.from_numpy(x), ratio).numpy()
        assert np.array_equal(out, brute_force(x, k))
        assert ((out.reshape(*shape[:2], -1) != 0).any(2).sum(1) == k).all()


@pytest.mark.parametrize("shape", [(5, 12), (5, 12, 3, 4)])
@pytest.mark.parametrize("ratio", [0.2, 0.55, 0.9, 1.0])
def test_with_the_threshold_of_the_text_one_unit_fewer_wins(shape, ratio):
    x = np.random.default_rng(1).normal(size=shape)
    out = k_wta(torch.from_numpy(x), ratio, threshold="k-1").numpy()
    assert np.array_equal(out, brute_force(x, int(ratio * 12) - 1))


def test_units_that_tie_at_the_threshold_all_lose():
    x = torch.tensor([[5.0, 3.0, -3.0, 1.0]])
    assert k_wta(x, 0.5).tolist() == [[5.0, 0.0, 0.0, 0.0]]  # k = 2: a tie for second place
    assert k_wta(x, 0.75).tolist() == [[5.0, 3.0, -3.0, 0.0]]  # k = 3: the tie is above the threshold
    assert k_wta(x, 0.75, threshold="k-1").tolist() == [[5.0, 0.0, 0.0, 0.0]]
    assert not k_wta(torch.ones(2, 4, 3, 3), 0.75).any()


def test_units_with_score_0_never_win():
    x = torch.tensor([[2.0, 0.0, 0.0, 0.0, 1.0]])
    assert k_wta(x, 0.8).tolist() == x.tolist()
    assert (k_wta(x, 0.8) != 0).sum() == 2  # fewer than k = 4


def test_the_score_is_the_sum_of_absolute_values_over_the_map():
    x = torch.zeros(1, 3, 2, 2)
    x[0, 0] = -1.0  # Σ|x| = 4, Σx = -4
    x[0, 1, 0, 0] = 3.0  # the largest value, but Σ|x| = 3
    x[0, 2] = torch.tensor([[2.5, -2.5], [0.0, 0.0]])  # Σ|x| = 5, Σx = 0
    for ratio, expected in [(1 / 3, [2]), (2 / 3, [0, 2])]:
        assert k_wta(x, ratio).abs().sum((2, 3))[0].nonzero().flatten().tolist() == expected
    assert torch.equal(k_wta(x, 2 / 3)[0, 0], x[0, 0])  # a winner passes unchanged, with its sign


@pytest.mark.parametrize("shape", [(4, 10), (4, 10, 3, 3)])
def test_the_gradient_passes_through_winners_only(shape):
    x = torch.randn(shape, generator=seeded(), dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(shape, generator=seeded(1), dtype=torch.float64)
    k_wta(x, 0.4).backward(upstream)
    for i in range(4):
        for j, wins in enumerate(kept_units(x[i].detach().numpy(), 4)):
            assert torch.equal(x.grad[i, j], upstream[i, j] if wins else torch.zeros_like(upstream[i, j]))


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1.0001, 2, float("nan"), float("inf")])
def test_a_ratio_outside_0_to_1_is_an_error(ratio):
    with pytest.raises(UsageError, match=f"active = {ratio}"):
        k_wta(torch.ones(2, 8), ratio)


def test_a_ratio_without_winners_is_an_error():
    with pytest.raises(UsageError, match="leaves none of 8 units"):
        k_wta(torch.ones(2, 8), 0.1)


@pytest.mark.parametrize("units", [10, 50, 64, 100, 512])
def test_k_is_ratio_times_units_rounded_down(units):
    for hundredths in range(1, 101):
        exact = int(Decimal(hundredths) * units / 100)
        if exact:
            assert num_winners(hundredths / 100, units) == exact


# --- Eq. 1 and Eq. 2


@pytest.mark.parametrize("pi", [0.5, 2.0, 5.0])
def test_heterogeneous_probability_is_eq_1(pi):
    a_g = np.array([0, 3, 40, 17, 40])
    expected = np.exp(-a_g / 40 * pi)
    assert heterogeneous_probability(torch.from_numpy(a_g), pi).numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("pi", [1.0, 2.0, 3.0])
def test_semantic_probability_is_eq_2_for_each_class(pi):
    a_s = np.random.default_rng(0).integers(0, 90, (6, 11))
    a_s[2] = 0
    found = semantic_probability(torch.from_numpy(a_s), pi).numpy()
    for c, row in enumerate(a_s):
        expected = np.zeros(11) if c == 2 else 1 - np.exp(-row / row.max() * pi)
        assert found[c] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert (found[a_s == 0] == 0).all()


def test_before_any_count_every_unit_has_p_h_of_1():
    assert heterogeneous_probability(torch.zeros(5, dtype=torch.int64), 5.0).tolist() == [1.0] * 5


def test_large_counts_are_precise():
    a_g = torch.tensor([10**9, 5 * 10**8, 1])
    assert heterogeneous_probability(a_g, 2.0).numpy() == pytest.approx(np.exp([-2, -1, -2e-9]), rel=1e-6)


# --- sampling units


@pytest.mark.parametrize("n", [1, 3, 8])
def test_every_row_has_exactly_n_units(n):
    mask = sample_units(torch.rand(8, generator=seeded()) + 0.01, n, 500, seeded(1))
    assert mask.shape == (500, 8)
    assert set(mask.unique().tolist()) <= {0.0, 1.0}
    assert (mask.sum(1) == n).all()


def test_units_of_weight_0_are_drawn_last():
    weight = torch.tensor([0.0, 0.5, 1.0, 0.0, 1e-3])
    assert (sample_units(weight, 3, 2000, seeded()) == (weight > 0)).all()
    assert not sample_units(weight, 2, 2000, seeded())[:, [0, 3]].any()
    four = sample_units(weight, 4, 200, seeded())  # one more than have a weight
    assert four[:, [1, 2, 4]].all()
    assert (four.sum(1) == 4).all()


def test_units_of_tiny_weight_are_drawn_before_units_of_weight_0():
    weight = heterogeneous_probability(torch.tensor([0, 50, 100, 100]), 200.0)  # 1, e^-100, 0 (e^-200), 0
    assert 0 < weight[1] < 1e-38
    assert (sample_units(weight, 2, 200, seeded())[:, 1] == 1).all()


def sequential_sets(weight, n):
    """Return the exact probability of each set when units are drawn one by one without replacement."""
    found = {frozenset(s): 0.0 for s in combinations(range(len(weight)), n)}
    for order in permutations(range(len(weight)), n):
        p, left = 1.0, sum(weight)
        for unit in order:
            p *= weight[unit] / left
            left -= weight[unit]
        found[frozenset(order)] += p
    return found


@pytest.mark.parametrize("n", [1, 2, 3])
def test_sets_are_as_likely_as_in_sequential_draws(n):
    weight, rows = [0.05, 0.3, 0.6, 1.0, 1.0], 40_000
    mask = sample_units(torch.tensor(weight), n, rows, seeded(3))
    drawn = {}
    for row in mask.to(torch.int64).tolist():
        units = frozenset(j for j, kept in enumerate(row) if kept)
        drawn[units] = drawn.get(units, 0) + 1
    for units, p in sequential_sets(weight, n).items():
        assert abs(drawn.get(units, 0) / rows - p) < close_to(p, rows), units


def test_units_are_drawn_as_often_as_by_numpys_choice():
    weight, n, rows = np.exp(-5 * np.linspace(0, 1, 12)), 9, 8000
    ours = sample_units(torch.from_numpy(weight).float(), n, rows, seeded(4)).mean(0).numpy()
    rng, theirs = np.random.default_rng(0), np.zeros(12)
    for _ in range(rows):
        theirs[rng.choice(12, n, replace=False, p=weight / weight.sum())] += 1 / rows
    assert (np.abs(ours - theirs) < 1.5 * close_to(theirs, rows)).all()


def test_rows_are_independent():
    mask = sample_units(torch.ones(6), 3, 20_000, seeded(5))
    both = (mask[::2] * mask[1::2]).mean(0).numpy()  # in both rows of a pair: ½ · ½
    assert (np.abs(both - 0.25) < close_to(np.full(6, 0.25), 10_000)).all()


# --- settings for each stage


def test_a_number_is_for_all_stages_and_a_list_for_the_last_ones():
    assert per_stage("pi_h", 2.0, 3) == (2.0, 2.0, 2.0)
    assert per_stage("pi_h", [1.0, 2.0], 2) == (1.0, 2.0)
    assert per_stage("pi_h", (0.5, 0.5, 5.0, 4.0), 2) == (5.0, 4.0)
    with pytest.raises(UsageError, match="pi_h has 2 values, but the network has 3 stages"):
        per_stage("pi_h", [1.0, 2.0], 3)


def test_network_settings_are_empty_for_a_dense_network():
    assert Coding(sparse=False).network_settings() == {}
    sparse = Coding(active=(0.5,), activate="block", threshold="k-1").network_settings()
    assert sparse == {"active": (0.5,), "activate": "block", "threshold": "k-1"}


# --- SparseCode

UNITS = (6, 10)
FIRST = [1.0] * 8 + [0.0] * 2  # int(1.1 · 0.8 · 10) = 8


def code(units=UNITS, classes=4, seed=0, **settings):
    settings = {"active": (0.5, 0.8), **settings}
    return SparseCode(Coding(**settings), units, classes, seeded(seed))


def test_at_the_start_the_first_units_can_be_retained():
    paper = SparseCode(Coding(), (64, 128, 256, 512), 10, seeded())
    for p_h, n in zip(paper.p_h, (63, 126, 253, 450), strict=True):  # int(1.1 · 0.9 · 64), … int(1.1 · 0.8 · 512)
        assert p_h.tolist() == [1.0] * n + [0.0] * (len(p_h) - n)
    assert all(not p_s.any() for p_s in paper.p_s)


def test_the_number_of_retained_units_is_at_most_that_of_units():
    assert code(active=(0.5, 0.95)).p_h[1].tolist() == [1.0] * 10  # 1.1 · 0.95 > 1


def test_at_the_start_random_units_can_be_retained():
    starts = torch.stack([code(seed=s, initial_p_h="random").p_h[1] for s in range(800)])
    assert (starts.sum(1) == 8).all()
    assert set(starts.unique().tolist()) == {0.0, 1.0}
    assert (np.abs(starts.mean(0).numpy() - 0.8) < close_to(np.full(10, 0.8), 800)).all()


def test_counts_equal_those_of_a_loop():
    c, rng = code(), np.random.default_rng(2)
    a_g, a_s = [np.zeros(n) for n in UNITS], [np.zeros((4, n)) for n in UNITS]
    for b in (7, 3):
        y = rng.integers(0, 4, b)
        fired = [rng.random((b, n)) < 0.4 for n in UNITS]
        c.count([torch.from_numpy(f) for f in fired], torch.from_numpy(y))
        for l, n in enumerate(UNITS):
            for i in range(b):
                for j in range(n):
                    a_g[l][j] += fired[l][i, j]
                    a_s[l][y[i], j] += fired[l][i, j]
    for l in range(2):
        assert c.a_g[l].tolist() == a_g[l].tolist()
        assert c.a_s[l].tolist() == a_s[l].tolist()


def test_probabilities_use_the_strength_of_their_stage():
    c = code(pi_h=(0.5, 5.0), pi_s=(1.0, 3.0))
    y, fired = torch.tensor([0, 0, 1]), [torch.rand(3, n, generator=seeded(n)) < 0.6 for n in UNITS]
    c.count(fired, y)
    before = [p.clone() for p in c.p_h]
    c.refresh_semantic()
    assert all(torch.equal(a, b) for a, b in zip(before, c.p_h, strict=True))  # P_h is unchanged
    for l, pi in enumerate((1.0, 3.0)):
        rows = np.stack([fired[l][:2].sum(0), fired[l][2], np.zeros(UNITS[l]), np.zeros(UNITS[l])])
        shares = rows / np.maximum(rows.max(1, keepdims=True), 1)
        assert c.p_s[l].numpy() == pytest.approx(1 - np.exp(-pi * shares), abs=1e-6)
    c.refresh_heterogeneous()
    for l, pi in enumerate((0.5, 5.0)):
        counts = fired[l].sum(0).numpy()
        assert c.p_h[l].numpy() == pytest.approx(np.exp(-pi * counts / counts.max()), rel=1e-5)


@pytest.mark.parametrize(("dropout", "masked"), [("last", [1]), ("all", [0, 1]), ("none", [])])
def test_stages_without_dropout_have_no_mask(dropout, masked):
    masks = code(dropout=dropout).dropout_masks(torch.tensor([0, 1, 2]))
    assert [l for l, mask in enumerate(masks) if mask is not None] == masked
    assert all(masks[l].shape == (3, UNITS[l]) for l in masked)


def test_dropout_is_heterogeneous_while_p_s_is_0():
    assert code().dropout_masks(torch.tensor([0, 3, 1]))[1].tolist() == [FIRST] * 3


def test_exempt_samples_retain_all_units():
    mask = code().dropout_masks(torch.tensor([0, 3, 1]), exempt=2)[1]
    assert mask.tolist() == [[1.0] * 10, [1.0] * 10, FIRST]


def test_a_class_with_p_s_has_a_semantic_mask():
    c = code(mask_choice="class")
    c.p_s[1][2, [1, 9]] = 1.0  # 1 is always retained, 0 never
    mask = c.dropout_masks(torch.tensor([0, 2, 3]))[1]
    assert mask.tolist() == [FIRST, [0, 1, 0, 0, 0, 0, 0, 0, 0, 1], FIRST]


def test_a_draw_that_equals_p_s_drops_the_unit():
    """As published; so a unit with P_s = 0 is never retained, even by a draw of 0."""
    u, p_s = torch.tensor([[0.0, 0.25, 0.25, 0.5]]), torch.tensor([[0.0, 0.25, 0.5, 0.25]])
    mask = _select(torch.ones(1, 4), u, p_s, torch.tensor([0]), 0, False)
    assert mask.tolist() == [[0, 0, 1, 0]]


def test_units_without_p_s_can_have_a_heterogeneous_mask():
    c = code(mask_choice="unit")
    c.p_s[1][2] = torch.tensor([0.0, 1.0, 1e-30, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    mask = c.dropout_masks(torch.tensor([0, 2]))[1]
    assert mask.tolist() == [FIRST, [1, 1, 0, 1, 1, 1, 1, 1, 0, 1]]  # unit 2 by P_s, 8 by P_h, 9 by P_s


def test_each_stage_has_its_own_p_s():
    c = code(dropout="all")
    c.p_s[0][1, 3] = 1.0
    first, last = c.dropout_masks(torch.tensor([1]))
    assert first.tolist() == [[0, 0, 0, 1, 0, 0]]
    assert last.tolist() == [FIRST]


@pytest.mark.parametrize("draw", ["batch", "sample"])
def test_heterogeneous_masks_are_drawn_for_the_batch_or_each_sample(draw):
    c = code(heterogeneous_draw=draw)
    c.p_h[1] = torch.full((10,), 0.5)
    masks = [c.dropout_masks(torch.tensor([0, 1] * 20))[1] for _ in range(5)]
    assert all((mask.sum(1) == 8).all() for mask in masks)
    assert all((len(mask.unique(dim=0)) == 1) == (draw == "batch") for mask in masks)
    assert len(torch.stack([mask[0] for mask in masks]).unique(dim=0)) > 1  # new for each batch


def test_one_uniform_vector_for_the_batch_nests_the_masks_of_classes():
    c = code(semantic_draw="batch")
    c.p_s[1][0], c.p_s[1][1] = 0.3, 0.7
    masks = torch.stack([c.dropout_masks(torch.tensor([0, 1, 0]))[1] for _ in range(2000)])  # [calls, 3, N]
    assert torch.equal(masks[:, 0], masks[:, 2])
    assert (masks[:, 0] <= masks[:, 1]).all()  # u ≤ 0.3 implies u ≤ 0.7
    for row, p in enumerate((0.3, 0.7)):
        assert (np.abs(masks[:, row].mean(0).numpy() - p) < close_to(np.full(10, p), 2000)).all()
    both = (masks[:, 0, :-1] * masks[:, 0, 1:]).mean(0).numpy()  # units are independent
    assert (np.abs(both - 0.09) < close_to(np.full(9, 0.09), 2000)).all()


def test_semantic_dropout_retains_units_with_probability_p_s():
    c, n = code(semantic_draw="sample"), 10_000
    c.p_s[1][:] = torch.rand(4, 10, generator=seeded(9)) * 0.98 + 0.01
    y = torch.arange(4).repeat(n)
    mask = c.dropout_masks(y)[1]
    for k in range(4):
        p = c.p_s[1][k].numpy()
        assert (np.abs(mask[y == k].mean(0).numpy() - p) < close_to(p, n)).all()
    both = (mask[:-4] * mask[4:])[y[4:] == 2].mean(0).numpy()  # two samples of one class
    p = c.p_s[1][2].numpy()
    assert (np.abs(both - p**2) < close_to(p**2, n - 1)).all()


def test_heterogeneous_dropout_retains_busy_units_less_often():
    c = code(pi_h=5.0, heterogeneous_draw="sample", active=(0.5, 0.4))  # int(1.1 · 0.4 · 10) = 4 retained
    c.a_s[1][2] += torch.arange(10) * 60  # of any class
    c.a_s[1][3] += torch.arange(10) * 40
    c.refresh_heterogeneous()
    found = c.dropout_masks(torch.zeros(4000, dtype=torch.int64))[1].mean(0).numpy()
    weight = np.exp(-5 * np.arange(10) / 9)
    p = sum(q * np.isin(np.arange(10), list(s)) for s, q in sequential_sets(weight, 4).items())
    assert (np.abs(found - p) < close_to(p, 4000)).all()


def test_masks_depend_only_on_the_given_generator():
    masks = []
    for seed in (1, 1, 2):
        c = code(seed=seed, semantic_draw="sample")
        c.p_s[1][:] = 0.5
        torch.rand(3)  # a draw from the global generator has no effect
        masks.append(c.dropout_masks(torch.arange(4))[1])
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_tensors_are_live_and_named():
    c = code()
    state = c.tensors()
    assert set(state) == {f"{kind}.{l}" for kind in ("a_s", "p_h", "p_s") for l in (1, 2)}
    c.count([torch.ones(1, n, dtype=torch.bool) for n in UNITS], torch.tensor([3]))
    c.refresh_semantic()
    c.refresh_heterogeneous()
    assert [a_g.tolist() for a_g in c.a_g] == [[1] * 6, [1] * 10]
    assert state["a_s.2"][3].tolist() == [1] * 10
    assert state["p_s.2"][3].min() > 0.8
    assert state["p_h.2"].max() < 0.01
