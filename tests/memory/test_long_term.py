"""Long-term memory against Eq. 3 in NumPy, and batch-norm statistics computed by hand."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from scommer.memory import LongTermMemory, WorkingMemory
from scommer.nn.layers import BatchNorm
from scommer.nn.networks import build


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pair(name="small", seed=0, **settings):
    working = WorkingMemory(build(name, (2, 6, 6), 4, seeded(), width=5, **settings))
    return working, LongTermMemory(working, seeded(seed))


def images(n, seed=0):
    return torch.randn(n, 2, 6, 6, generator=seeded(seed))


def shake(vector, seed):
    """Add noise to every weight."""
    vector.add_(torch.randn(vector.shape, generator=seeded(seed)))


def zero_and_one(long_term, working):
    """Set θ_s = 0 and θ_w = 1, so that θ_s shows the weight of θ_w in the next update."""
    long_term.weights.theta.zero_()
    working.weights.theta.fill_(1.0)


# --- Eq. 3


def test_it_starts_as_a_copy_of_working_memory():
    working, long_term = pair()
    x = images(5)
    assert torch.equal(long_term.weights.theta, working.weights.theta)
    assert torch.equal(long_term.weights.statistics, working.weights.statistics)
    assert long_term.units == working.units == (5, 10)
    before = long_term.weights.theta.clone()
    working.backward(F.cross_entropy(working(x).logits, torch.arange(5) % 4))
    working.update(0.5)
    assert torch.equal(long_term.weights.theta, before)
    assert not long_term.weights.statistics[:5].any()  # the pass of working memory left them unchanged
    kept = working.weights.theta.clone()
    shake(long_term.weights.theta, 1)
    long_term.retrieve(x)
    assert torch.equal(working.weights.theta, kept)
    addresses = [{p.data_ptr() for p in m.network.parameters()} for m in (working, long_term)]
    assert not addresses[0] & addresses[1]


def test_it_is_as_sparse_as_working_memory():
    working, long_term = pair(active=(0.6, 0.4), activate="block", threshold="k-1")
    x = images(5)
    assert torch.equal(long_term.retrieve(x), working(x).logits)
    dense, _ = pair()
    assert not torch.allclose(dense(x).logits, long_term.retrieve(x))


@pytest.mark.parametrize("ramp", [True, False])
@pytest.mark.parametrize(("r", "alpha"), [(0.5, 0.9), (0.3, 0.75), (1.0, 0.999)])
def test_consolidation_follows_eq_3(ramp, r, alpha):
    working, long_term = pair()
    draws = torch.Generator()
    draws.set_state(long_term.generator.get_state())
    theta_s = long_term.weights.theta.double().numpy()
    updates = 0
    for step in range(1, 31):
        shake(working.weights.theta, step)
        theta_w = working.weights.theta.double().numpy()
        long_term.consolidate(working, r, alpha, ramp)
        if r > torch.rand((), generator=draws).item():
            a = min(1 - 1 / (step + 1), alpha) if ramp else alpha
            theta_s = a * theta_s + (1 - a) * theta_w
            updates += 1
        assert np.allclose(long_term.weights.theta.numpy(), theta_s, rtol=0, atol=1e-5), step
    assert updates == 30 if r == 1 else 3 < updates < 27


@pytest.mark.parametrize("r", [0.1, 0.5, 0.7])
def test_updates_have_probability_r(r):
    working, long_term = pair("mlp", seed=3)
    hits, runs = 0, 3000
    for _ in range(runs):
        zero_and_one(long_term, working)
        long_term.consolidate(working, r, 0.5, ramp=False)
        mixed = long_term.weights.theta.unique().tolist()  # one draw for all weights
        assert mixed in ([0.0], [0.5])
        hits += mixed == [0.5]
    assert abs(hits / runs - r) < 5 * np.sqrt(r * (1 - r) / runs)


@pytest.mark.parametrize(("r", "expected"), [(0.0, 0.0), (1.0, 0.5)])
def test_r_of_0_never_and_r_of_1_always_updates(r, expected):
    working, long_term = pair("mlp")
    for _ in range(300):
        zero_and_one(long_term, working)
        long_term.consolidate(working, r, 0.5, ramp=False)
        assert (long_term.weights.theta == expected).all()


def decays(alpha, ramp, steps):
    working, long_term = pair("mlp")
    found = []
    for _ in range(steps):
        zero_and_one(long_term, working)
        long_term.consolidate(working, 1.0, alpha, ramp)
        found.append(1 - long_term.weights.theta[0].item())
    return found


def test_the_decay_ramps_up_to_alpha():
    assert decays(0.999, True, 3) == pytest.approx([1 / 2, 2 / 3, 3 / 4], abs=1e-6)
    assert decays(0.8, True, 6) == pytest.approx([1 / 2, 2 / 3, 3 / 4, 4 / 5, 4 / 5, 4 / 5], abs=1e-6)
    assert decays(0.4, True, 2) == pytest.approx([0.4, 0.4], abs=1e-6)
    late = decays(0.999, True, 1002)
    assert late[997] == pytest.approx(1 - 1 / 999, abs=1e-6)
    assert late[998:] == pytest.approx([0.999] * 4, abs=1e-6)


def test_without_the_ramp_the_decay_is_alpha():
    assert decays(0.999, False, 3) == pytest.approx([0.999] * 3, abs=1e-6)


def test_the_ramp_counts_steps_rather_than_updates():
    working, long_term = pair("mlp")
    for _ in range(3):
        long_term.consolidate(working, 0.0, 0.999, ramp=True)
    zero_and_one(long_term, working)
    long_term.consolidate(working, 1.0, 0.999, ramp=True)
    assert long_term.weights.theta[0].item() == pytest.approx(1 / 5, abs=1e-6)


def test_with_r_of_1_the_ramp_gives_the_plain_average():
    working, long_term = pair("mlp")
    seen = [long_term.weights.theta.double().numpy()]
    for step in range(20):
        shake(working.weights.theta, step)
        seen.append(working.weights.theta.double().numpy())
        long_term.consolidate(working, 1.0, 0.999, ramp=True)
    assert np.allclose(long_term.weights.theta.numpy(), np.mean(seen, 0), atol=1e-5)


def test_draws_use_only_the_given_generator():
    global_state = torch.get_rng_state()
    runs = []
    for seed in (1, 1, 2):
        working, long_term = pair("mlp", seed)
        thetas = []
        for step in range(30):
            shake(working.weights.theta, step)
            long_term.consolidate(working, 0.5, 0.9, ramp=False)
            thetas.append(long_term.weights.theta.clone())
        runs.append(torch.stack(thetas))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(torch.get_rng_state(), global_state)


# --- batch-norm statistics


def stem_statistics(x, memory):
    """Return mean and unbiased variance of the input of the first batch-norm layer."""
    z = F.conv2d(x, memory.network.stem.weight.detach(), None, 1, 1).double().numpy()
    return z.mean((0, 2, 3)), z.var((0, 2, 3), ddof=1)


def running(long_term, statistics=None):
    """Return running mean and variance of the first batch-norm layer (5 units: the first 10 values)."""
    vector = (long_term.weights.statistics if statistics is None else statistics).double().numpy()
    return vector[:5], vector[5:10]


def test_its_own_passes_update_the_running_statistics_with_momentum_0_1():
    _, long_term = pair()
    mean, var = np.zeros(5), np.ones(5)
    for i in range(3):
        x = 2 * images(7, seed=i) + i
        m, v = stem_statistics(x, long_term)
        long_term.retrieve(x)
        mean, var = 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v
        assert running(long_term)[0] == pytest.approx(mean, abs=1e-5)
        assert running(long_term)[1] == pytest.approx(var, rel=1e-4)


def test_retrieval_is_in_training_mode_and_without_gradient():
    working, long_term = pair()
    shake(long_term.weights.theta, 1)
    x = 3 * images(6) + 1
    twin = copy.deepcopy(long_term.network)
    assert twin.training
    logits = long_term.retrieve(x)
    assert not logits.requires_grad
    assert torch.equal(logits, twin(x).logits)
    assert not torch.allclose(logits, twin.eval()(x).logits)
    assert not any(p.requires_grad for p in long_term.network.parameters())
    assert all(p.requires_grad for p in working.network.parameters())


def test_responses_are_in_evaluation_mode_and_change_nothing():
    _, long_term = different_pair()
    x, twin = images(6), copy.deepcopy(long_term.network).eval()
    before = long_term.weights.statistics.clone()
    assert torch.equal(long_term.respond(x), twin(x).logits)
    assert torch.equal(long_term.weights.statistics, before)
    assert not torch.allclose(long_term.retrieve(x), twin(x).logits)  # back in training mode


def test_copying_takes_weights_and_statistics_and_keeps_them_separate():
    working, long_term = different_pair()
    long_term.copy_from(working)
    x = images(6)
    assert torch.equal(long_term.respond(x), working.network.eval()(x).logits)
    kept = [long_term.weights.theta.clone(), long_term.weights.statistics.clone()]
    shake(working.weights.theta, 1)
    shake(working.weights.statistics, 2)
    assert torch.equal(long_term.weights.theta, kept[0])
    assert torch.equal(long_term.weights.statistics, kept[1])


def test_consolidation_averages_parameters_only():
    working, long_term = pair()
    shake(working.weights.theta, 1)
    shake(working.weights.statistics, 2)
    before = long_term.weights.statistics.clone()
    long_term.consolidate(working, 1.0, 0.9, ramp=False)
    assert torch.equal(long_term.weights.statistics, before)
    for name, p in long_term.network.named_parameters():  # including those of batch norm
        start = build("small", (2, 6, 6), 4, seeded(), width=5).get_parameter(name)
        expected = 0.9 * start + 0.1 * working.network.get_parameter(name)
        torch.testing.assert_close(p.detach(), expected.detach(), atol=1e-6, rtol=1e-5)


def different_pair():
    """Return two memories that differ in weights and statistics."""
    working, long_term = pair()
    for i, m in enumerate((working, long_term)):
        shake(m.weights.theta, 10 + i)
        m.weights.statistics.copy_(torch.rand(m.weights.statistics.shape, generator=seeded(20 + i)) + 0.5)
    return working, long_term


def test_statistics_for_inference_are_copies_of_its_own_or_of_working_memorys():
    working, long_term = different_pair()
    for choice, expected in (("replay", long_term), ("working", working)):
        found = long_term.statistics(choice, working, [images(4)])
        assert torch.equal(found, expected.weights.statistics)
        kept = expected.weights.statistics.clone()
        found.zero_()  # a copy
        assert torch.equal(expected.weights.statistics, kept)


@pytest.mark.parametrize("sizes", [[6], [6, 6, 6], [8, 3, 5]])
def test_recalibrated_statistics_are_the_mean_over_batches(sizes):
    working, long_term = different_pair()
    batches = [(i + 1) * images(n, seed=i) - i for i, n in enumerate(sizes)]
    found = long_term.statistics("recalibrated", working, iter(batches))
    each = [stem_statistics(x, long_term) for x in batches]
    mean, var = running(long_term, found)
    assert mean == pytest.approx(np.mean([m for m, _ in each], 0), abs=1e-4)
    assert var == pytest.approx(np.mean([v for _, v in each], 0), rel=1e-4)


def test_recalibration_covers_every_layer():
    working, long_term = different_pair()
    batches = [images(6, seed=i) for i in range(2)]
    found = long_term.statistics("recalibrated", working, batches)
    twin, inputs = copy.deepcopy(long_term.network), {}
    norms = [m for m in twin.modules() if isinstance(m, BatchNorm)]
    for norm in norms:
        norm.register_forward_pre_hook(lambda m, args: inputs.setdefault(m, []).append(args[0].double()))
    for x in batches:
        twin(x)
    start = 0
    for norm in norms:
        n = len(norm.weight)
        for statistic in (lambda z: z.mean((0, 2, 3)), lambda z: z.transpose(0, 1).flatten(1).var(1)):
            expected = torch.stack([statistic(z) for z in inputs[norm]]).mean(0).float()
            torch.testing.assert_close(found[start : start + n], expected, rtol=1e-4, atol=1e-4)
            start += n
    assert start == len(found)


def test_recalibration_leaves_both_memories_unchanged():
    working, long_term = different_pair()
    untouched = copy.deepcopy(long_term.network)
    before = {name: t.clone() for name, t in long_term.tensors().items()}
    draws = long_term.generator.get_state()
    others = {name: t.clone() for name, t in working.tensors().items()}
    long_term.statistics("recalibrated", working, [images(6), images(4, 1)])
    assert all(torch.equal(t, before[name]) for name, t in long_term.tensors().items())
    assert all(torch.equal(t, others[name]) for name, t in working.tensors().items())
    assert torch.equal(long_term.generator.get_state(), draws)
    x = images(5, 2)  # the next pass updates the statistics with the usual momentum
    assert torch.equal(long_term.retrieve(x), untouched(x).logits)
    assert torch.equal(long_term.network.stem_norm.running_var, untouched.stem_norm.running_var)


def test_recalibration_without_batches_returns_its_own_statistics():
    working, long_term = different_pair()
    found = long_term.statistics("recalibrated", working, [])
    assert torch.equal(found, long_term.weights.statistics)


def test_a_restored_memory_continues_identically():
    def train(working, long_term, steps):
        for step in steps:
            shake(working.weights.theta, step)
            long_term.retrieve(images(5, step))
            long_term.consolidate(working, 0.5, 0.9, ramp=True)

    whole, first, second = pair(seed=1), pair(seed=1), pair(seed=2)
    train(*whole, range(8))
    train(*first, range(4))
    for a, b in zip(second, first, strict=True):
        for name, t in a.tensors().items():
            t.copy_(b.tensors()[name])
    second[1].generator.set_state(first[1].generator.get_state())
    train(*second, range(4, 8))
    for name, t in second[1].tensors().items():
        assert torch.equal(t, whole[1].tensors()[name]), name


def test_an_error_during_recalibration_leaves_the_memory_unchanged():
    def broken():
        yield images(6)
        raise ZeroDivisionError

    working, long_term = different_pair()
    untouched = copy.deepcopy(long_term.network)
    with pytest.raises(ZeroDivisionError):
        long_term.statistics("recalibrated", working, broken())
    for network in (untouched, long_term.network):
        network(images(5, 2))
    assert torch.equal(long_term.network.stem_norm.running_var, untouched.stem_norm.running_var)
