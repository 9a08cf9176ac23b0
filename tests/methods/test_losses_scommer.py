"""SCoMMER's losses and codes against Eq. 1 to 4, computed by hand: as published, by the text, and in parts."""

import copy
from dataclasses import fields

import numpy as np
import pytest
import torch
from by_hand import (
    CLASSES,
    CODING,
    FACTORY,
    FIRST,
    PRESETS,
    START,
    TASK,
    UNITS,
    Twin,
    batch,
    ce,
    masks,
    memories_of,
    mse,
    same,
    seeded,
    shake,
    task_images,
)

from scommer.methods import Outcome
from scommer.methods.er import ER
from scommer.methods.scommer import SCoMMER


def passes(network, mask, replay_mask=None):
    """The published way: first replay, then task, each a pass of its own."""
    z_m = network(FIRST.x, replay_mask).logits
    return z_m, network(TASK.x, mask).logits


def test_scommer_official_is_two_passes_and_the_sum_of_their_losses():
    method = SCoMMER(**CODING)
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z_m, z_t = passes(twin.network, masks([START] * 7))
    z_s = twin.slow["long_term"](FIRST.x).logits  # in train mode
    same(outcome.logits, z_t)
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y) + 0.3 * mse(z_m, z_s.detach()))
    assert not outcome.fired[1][:, 14:].any()


def test_scommer_official_with_semantic_dropout():
    method = SCoMMER(**CODING)
    memories = memories_of(method)
    rows = (torch.rand(CLASSES, 16, generator=seeded(3)) < 0.6).float()  # retained for sure, or not at all
    rows[1] = 0.0  # a class that was never active: heterogeneous
    memories.parts["code"].p_s[1].copy_(rows)
    assert 1 in TASK.y.tolist()
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    expected = [START if c == 1 else rows[c].tolist() for c in TASK.y.tolist()]
    z_m, z_t = passes(twin.network, masks(expected))
    z_s = twin.slow["long_term"](FIRST.x).logits
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y) + 0.3 * mse(z_m, z_s.detach()))


def test_scommer_by_the_text_is_one_joint_batch():
    method = SCoMMER(**CODING, joint_batch=True)
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z = twin.network(torch.cat([FIRST.x, TASK.x]), masks([[1.0] * 16] * 5 + [START] * 7)).logits
    z_s = twin.slow["long_term"](FIRST.x).logits
    same(outcome.logits, z[5:])
    twin.check(memories, outcome, ce(z, torch.cat([FIRST.y, TASK.y])) + 0.3 * mse(z[:5], z_s.detach()))


def test_scommer_with_every_setting_of_the_paper():
    paper = {k: v for k, v in PRESETS["variant"]["paper"]["scommer"].items() if k in {f.name for f in fields(SCoMMER)}}
    method = SCoMMER(**paper | {"active": (0.9, 0.8), "gamma": 0.3})
    memories = memories_of(method)
    start = memories.parts["code"].p_h[1].tolist()  # at random, but 14 of them: a draw of 14 is all of them
    assert sum(start) == 14
    assert start != START
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z = twin.network(torch.cat([FIRST.x, TASK.x]), masks([start] * 12)).logits
    z_s = twin.slow["long_term"](FIRST.x).logits
    twin.check(memories, outcome, ce(z, torch.cat([FIRST.y, TASK.y])) + 0.3 * mse(z[:5], z_s.detach()))
    for network in (memories.working.network, memories.long_term["long_term"].network):
        assert [a.threshold for a in network.activations] == ["k-1", "k-1"]
        assert network.every_block


def test_scommer_can_drop_units_in_replay_too():
    method = SCoMMER(**CODING, replay_dropout=True)
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z_m, z_t = passes(twin.network, masks([START] * 7), masks([START] * 5))
    z_s = twin.slow["long_term"](FIRST.x).logits  # never dropped
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y) + 0.3 * mse(z_m, z_s.detach()))


@pytest.mark.parametrize(
    ("settings", "agree"), [({}, True), ({"joint_batch": True}, False), ({"replay_dropout": True}, False)]
)
def test_memories_of_equal_weights_agree_on_recalled_images_as_published_but_not_by_the_text(settings, agree):
    """Where they do not, working memory is asked for what it does not have, whatever its weights: the text diverges."""
    losses = []
    for gamma in (0.0, 1.0):
        method = SCoMMER(**CODING | {"gamma": gamma}, **settings)
        losses.append(method.loss(FACTORY.memories(method), TASK, (FIRST,)).loss.item())
    assert (abs(losses[1] - losses[0]) < 1e-6) == agree


def test_scommer_drops_units_of_every_stage_where_asked():
    method = SCoMMER(**CODING, dropout="all")
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    early = [1.0] * 7 + [0.0]  # int(1.1 · 0.9 · 8) = 7
    z_m, z_t = passes(twin.network, [torch.tensor([early] * 7), torch.tensor([START] * 7)])
    z_s = twin.slow["long_term"](FIRST.x).logits
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y) + 0.3 * mse(z_m, z_s.detach()))


def test_ablation_without_dropout():
    method = SCoMMER(**CODING, dropout="none")
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z_m, z_t = passes(twin.network, None)
    z_s = twin.slow["long_term"](FIRST.x).logits
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y) + 0.3 * mse(z_m, z_s.detach()))


def test_ablation_without_long_term_memory():
    method = SCoMMER(**CODING, long_term=False)
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z_m, z_t = passes(twin.network, masks([START] * 7))
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y))
    assert memories.long_term == {}
    assert method.inference == "working"
    assert [v.name for v in method.views(memories, [])] == ["working"]
    method.after_step(memories, TASK, outcome)


def test_ablation_without_sparse_activations():
    method = SCoMMER(**CODING, sparse=False, dropout="none")
    memories = memories_of(method)
    dense = FACTORY.memories(ER())
    start, other = FACTORY.memories(method).working.network, dense.working.network
    assert torch.equal(start(TASK.x).logits, other(TASK.x).logits)  # the dense network of the baselines
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z_m, z_t = passes(twin.network, None)
    z_s = twin.slow["long_term"](FIRST.x).logits
    twin.check(memories, outcome, ce(z_m, FIRST.y) + ce(z_t, TASK.y) + 0.3 * mse(z_m, z_s.detach()))
    sparse = FACTORY.memories(SCoMMER(**CODING, dropout="none")).working.network
    assert not torch.allclose(sparse(TASK.x).logits, other(TASK.x).logits)


def test_task_samples_alone_are_counted():
    method = SCoMMER(**CODING)
    memories = memories_of(method)
    code = memories.parts["code"]
    network = copy.deepcopy(memories.working.network)
    method.observe(memories, TASK, method.loss(memories, TASK, (FIRST,)))
    fired = network(TASK.x, masks([START] * 7)).fired
    for l, n in enumerate(UNITS):
        a_s = np.zeros((CLASSES, n))
        for i, c in enumerate(TASK.y.tolist()):
            a_s[c] += fired[l][i].numpy()
        assert code.a_s[l].tolist() == a_s.tolist()
        assert code.a_g[l].tolist() == a_s.sum(0).tolist()
        assert a_s.any()


def test_a_loss_alone_counts_and_consolidates_nothing():
    method = SCoMMER(**CODING, r=1.0)
    memories = memories_of(method)
    before = {name: t.clone() for name, t in memories.tensors().items() if not name.endswith("/statistics")}
    method.loss(memories, TASK, (FIRST,))
    assert all(torch.equal(t, before[name]) for name, t in memories.tensors().items() if name in before)


def test_after_a_step_working_memory_is_consolidated():
    method = SCoMMER(**CODING, r=1.0, alpha=0.75, ramp=False)
    memories = memories_of(method)
    before = memories.long_term["long_term"].weights.theta.clone()
    outcome = method.loss(memories, TASK, (FIRST,))
    memories.working.backward(outcome.loss)
    memories.working.update(0.1)
    method.after_step(memories, TASK, outcome)
    same(memories.long_term["long_term"].weights.theta, 0.75 * before + 0.25 * memories.working.weights.theta)


def stepped(**settings):
    method = SCoMMER(**CODING, **settings)
    memories = memories_of(method)
    method.observe(memories, TASK, method.loss(memories, TASK, ()))
    return method, memories


def eq_1(counts, pi):
    counts = counts.numpy()
    return np.exp(-pi * counts / counts.max())


def eq_2(counts, pi):
    counts = counts.numpy()
    return 1 - np.exp(-pi * counts / np.maximum(counts.max(1, keepdims=True), 1))


def test_p_s_follows_each_epoch_numbered_above_the_warm_up():
    method, memories = stepped(warmup=3, pi_s=2.0)
    p_h = [p.clone() for p in memories.parts["code"].p_h]
    for epoch in range(4):
        method.after_epoch(memories, epoch)
        assert not any(p.any() for p in memories.parts["code"].p_s)
    method.after_epoch(memories, 4)
    for p_s, a_s in zip(memories.parts["code"].p_s, memories.parts["code"].a_s, strict=True):
        assert p_s.numpy() == pytest.approx(eq_2(a_s, 2.0), abs=1e-6)
    assert all(
        torch.equal(a, b) for a, b in zip(p_h, memories.parts["code"].p_h, strict=True)
    )  # P_h waits for the task's end


@pytest.mark.parametrize("refresh", [True, False])
def test_after_a_task_p_h_follows_and_p_s_where_asked(refresh):
    method, memories = stepped(refresh_at_task_end=refresh, pi_s=2.0)
    method.after_task(memories, task_images())
    for l in range(2):
        assert memories.parts["code"].p_h[l].numpy() == pytest.approx(
            eq_1(memories.parts["code"].a_g[l], 2.0), rel=1e-5
        )
        expected = eq_2(memories.parts["code"].a_s[l], 2.0) if refresh else np.zeros((CLASSES, UNITS[l]))
        assert memories.parts["code"].p_s[l].numpy() == pytest.approx(expected, abs=1e-6)


def test_counts_grow_over_tasks():
    method, memories = stepped()
    once = [a.clone() for a in memories.parts["code"].a_g]
    method.after_task(memories, task_images())
    memories.parts["code"].p_h[1].copy_(torch.tensor(START))
    method.observe(memories, TASK, Outcome(torch.zeros(()), torch.zeros(()), [torch.ones(7, n) > 0 for n in UNITS]))
    for a, before in zip(memories.parts["code"].a_g, once, strict=True):
        assert torch.equal(a, before + 7)


def test_memories_are_evaluated_with_the_chosen_statistics_first():
    calibration = [batch(6, 31).x, batch(6, 41).x]
    for choice, names in {
        "replay": ["working", "long_term", "long_term/working", "long_term/recalibrated"],
        "working": ["working", "long_term", "long_term/replay", "long_term/recalibrated"],
        "recalibrated": ["working", "long_term", "long_term/replay", "long_term/working"],
    }.items():
        method = SCoMMER(**CODING, statistics=choice)
        memories = memories_of(method)
        shake(memories.working.weights.statistics, 8)
        views = {v.name: v for v in method.views(memories, iter(calibration))}
        assert list(views) == names
        slow = memories.long_term["long_term"]
        assert all(v.memory is (memories.working if v.name == "working" else slow) for v in views.values())
        found = {"long_term/" + choice: views["long_term"], **views}
        assert torch.equal(found["working"].statistics, memories.working.weights.statistics)
        assert torch.equal(found["long_term/replay"].statistics, slow.weights.statistics)
        assert torch.equal(found["long_term/working"].statistics, memories.working.weights.statistics)
        z = [torch.nn.functional.conv2d(x, slow.network.stem.weight, None, 1, 1) for x in calibration]
        means = torch.stack([a.mean((0, 2, 3)) for a in z]).mean(0)
        same(found["long_term/recalibrated"].statistics[:8], means)
    assert SCoMMER().inference == "long_term"
    assert SCoMMER(answer="working").inference == "working"
