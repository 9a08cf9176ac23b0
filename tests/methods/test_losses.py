"""The loss of one step of every method against its formula, from separate passes of copied networks."""

import copy
from dataclasses import replace

import pytest
import torch
from by_hand import (
    CLASSES,
    CODING,
    FACTORY,
    FIRST,
    SECOND,
    START,
    TASK,
    Twin,
    ce,
    masks,
    memories_of,
    mse,
    same,
    task_images,
)

from scommer.methods import METHODS, Outcome
from scommer.methods.cls_er import CLSER, _consistent
from scommer.methods.derpp import DERpp
from scommer.methods.er import ER
from scommer.methods.joint import Joint
from scommer.methods.sgd import SGD

# --- SGD and JOINT


@pytest.mark.parametrize("method", [SGD(), Joint()])
def test_sgd_learns_the_task_alone(method):
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, ())
    z = twin.network(TASK.x).logits
    same(outcome.logits, z)
    twin.check(memories, outcome, ce(z, TASK.y))
    assert memories.episodic is None
    assert (method.draws, method.joint) == (0, isinstance(method, Joint))


@pytest.mark.parametrize("method", [SGD(), Joint(), ER(), DERpp()])
def test_without_long_term_memory_working_memory_answers(method):
    memories = memories_of(method)
    (view,) = method.views(memories, [])
    assert view.name == method.inference == "working"
    assert view.memory is memories.working
    assert torch.equal(view.statistics, memories.working.weights.statistics)


# --- ER


def test_er_is_one_mean_cross_entropy_over_the_concatenated_batch():
    method = ER()
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z = twin.network(torch.cat([TASK.x, FIRST.x])).logits
    same(outcome.logits, z[:7])
    twin.check(memories, outcome, ce(z, torch.cat([TASK.y, FIRST.y])))


# --- DER++


def test_derpp_is_three_passes_one_after_the_other():
    method = DERpp(alpha=0.2, beta=0.7)
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST, SECOND))
    z_t, z_1, z_2 = (twin.network(b.x).logits for b in (TASK, FIRST, SECOND))
    same(outcome.logits, z_t)
    loss = ce(z_t, TASK.y) + 0.2 * mse(z_1, FIRST.extra["logits"]) + 0.7 * ce(z_2, SECOND.y)
    twin.check(memories, outcome, loss)


def test_derpp_remembers_the_logits_of_the_training_pass():
    method = DERpp()
    memories = memories_of(method)
    expected = copy.deepcopy(memories.working.network).train()(TASK.x).logits
    outcome = method.loss(memories, TASK, (FIRST, SECOND))
    kept = method.extra_fields(outcome)
    assert set(kept) == {"logits"}
    assert not kept["logits"].requires_grad
    memories.working.backward(outcome.loss)  # what is kept is from before the update
    memories.working.update(0.5)
    number = torch.arange(7)[:, None, None, None].expand(-1, 2, 6, 6).to(torch.uint8)
    memories.episodic.remember(x=number, y=TASK.y, **kept)
    recalled = memories.episodic.recall(5)
    which = recalled["x"][:, 0, 0, 0].long()
    same(recalled["logits"], expected[which].detach())
    assert torch.equal(recalled["y"], TASK.y[which])


def test_only_derpp_keeps_more_than_image_and_label():
    for name, kind in METHODS.items():
        memories = FACTORY.memories(kind())
        outcome = Outcome(torch.zeros(()), torch.zeros(2, CLASSES), [])
        extra = {"logits"} if name == "der++" else set()
        assert set(kind().extra_fields(outcome)) == extra
        if memories.episodic:
            assert set(memories.episodic.fields) == {"x", "y"} | extra


# --- CLS-ER


def test_cls_er_follows_the_memory_that_knows_the_true_class_better():
    method = CLSER(reg=0.4)
    memories = memories_of(method)
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (FIRST,))
    z_m = twin.network(FIRST.x).logits  # alone, as the others answer
    z = twin.network(torch.cat([TASK.x, FIRST.x])).logits
    plastic, stable = (twin.slow[name](FIRST.x).logits for name in ("plastic", "stable"))
    target, choices = [], []
    for i, c in enumerate(FIRST.y.tolist()):
        better = plastic[i].softmax(0)[c] > stable[i].softmax(0)[c]
        target.append(plastic[i] if better else stable[i])
        choices.append(bool(better))
    assert 0 < sum(choices) < 5  # both kinds occur
    same(outcome.logits, z[:7])
    twin.check(memories, outcome, ce(z, torch.cat([TASK.y, FIRST.y])) + 0.4 * mse(z_m, torch.stack(target)))


def test_cls_er_follows_the_plastic_memory_where_both_are_equally_sure():
    """As published: here the logits of the stable memory are larger by 1, which does not change its probabilities."""
    y, z = torch.tensor([0, 1]), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    plastic = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 2.0]])
    loss = _consistent(z, torch.cat([y, y]), [plastic, plastic + 1], 2, 0.5)
    same(loss, ce(z[2:], y) + 0.5 * mse(z[:2], plastic))


def test_cls_er_memories_that_are_still_equal_agree():
    """So long as the three have the same weights, there is nothing to be consistent about."""
    memories = FACTORY.memories(CLSER())
    without, whole = (CLSER(reg=reg).loss(memories, TASK, (FIRST,)).loss for reg in (0.0, 100.0))
    same(without, whole)


def test_cls_er_consolidates_each_memory_at_its_own_rate():
    method = CLSER(r_plastic=1.0, r_stable=0.0, alpha=0.75, ramp=False)
    memories = memories_of(method)
    before = {name: m.weights.theta.clone() for name, m in memories.long_term.items()}
    method.after_step(memories, TASK, method.loss(memories, TASK, ()))
    assert torch.equal(memories.long_term["stable"].weights.theta, before["stable"])
    same(memories.long_term["plastic"].weights.theta, 0.75 * before["plastic"] + 0.25 * memories.working.weights.theta)
    assert method.inference == "stable"
    *views, beside = method.views(memories, [])
    assert [v.name for v in views] == ["working", "plastic", "stable"]
    assert (beside.name, beside.memory) == ("stable/working", memories.long_term["stable"])
    assert torch.equal(beside.statistics, memories.working.weights.statistics)
    assert not torch.equal(beside.statistics, memories.long_term["stable"].weights.statistics)


# --- all of them

DESCENDING = [name for name, kind in METHODS.items() if kind.descends]


def usable(name):
    return METHODS[name](**CODING) if name == "scommer" else METHODS[name]()


@pytest.mark.parametrize("name", DESCENDING)
def test_with_nothing_to_recall_the_loss_is_the_tasks(name):
    method = usable(name)
    memories = memories_of(method)
    twin = Twin(memories)
    z = twin.network(TASK.x, masks([START] * 7) if name == "scommer" else None).logits
    outcome = method.loss(memories, TASK, ())
    twin.check(memories, outcome, ce(z, TASK.y))
    method.after_step(memories, TASK, outcome)
    method.after_epoch(memories, 99)
    method.after_task(memories, task_images())


@pytest.mark.parametrize("name", METHODS)
def test_a_step_draws_from_owned_generators_only(name):
    method, everyone = usable(name), torch.get_rng_state()
    ends = []
    for seed in (0, 0, 1):
        memories = replace(FACTORY, seed=seed).memories(method)
        for _ in range(3):
            outcome = method.loss(memories, TASK, (FIRST, SECOND)[: method.draws])
            if method.descends:
                memories.working.backward(outcome.loss)
                memories.working.update(0.1)
            method.after_step(memories, TASK, outcome)
        ends.append(torch.cat([t.double().flatten() for t in memories.tensors().values()]))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])
    assert torch.equal(torch.get_rng_state(), everyone)


def test_every_generator_of_a_mind_has_a_role_of_its_own():
    states = {}
    for name in METHODS:
        generators = FACTORY.memories(usable(name)).generators()
        assert len({g.initial_seed() for g in generators.values()}) == len(generators)
        states[name] = set(generators)
    assert states["scommer"] == {"episodic", "long_term", "code"}
    assert states["cls-er"] == {"episodic", "plastic", "stable"}


@pytest.mark.parametrize("name", DESCENDING)
def test_all_methods_start_from_the_same_weights(name):
    thetas = [FACTORY.memories(usable(n)).working.weights.theta for n in ("sgd", name)]
    assert torch.equal(*thetas)
