"""ER-ACE, online EWC, LwF and A-GEM against their formulas, from separate passes of copied networks."""

import copy
from dataclasses import replace

import pytest
import torch
from by_hand import CLASSES, FIRST, TASK, Twin, batch, ce, memories_of, same, seeded, task_images

from scommer.data import load
from scommer.engine.learner import Learner
from scommer.methods.agem import AGEM
from scommer.methods.er_ace import ERACE
from scommer.methods.ewc import EWC, fisher
from scommer.methods.lwf import LwF
from scommer.methods.training import Training
from scommer.streams import class_il


def vector(gradients):
    """Gradients end to end, kernels channels-last, as `WorkingMemory.gradient` has them."""
    return torch.cat([(g.permute(0, 2, 3, 1) if g.dim() == 4 else g).flatten() for g in gradients])


def softmax(z):
    return torch.exp(z) / torch.exp(z).sum(1, keepdim=True)


# --- ER-ACE


def test_er_ace_leaves_absent_earlier_classes_out_of_the_task_loss():
    method = ERACE()
    memories, task = memories_of(method), batch(7, 1)._replace(y=torch.tensor([3, 3, 2, 3, 2, 2, 3]))
    memories.state["seen"][torch.tensor([0, 2])] = True  # 1 and 4 were never seen, 3 is new
    twin = Twin(memories)
    z_t, z_m = twin.network(task.x).logits, twin.network(FIRST.x).logits
    allowed = [1, 2, 3, 4]
    places = torch.tensor([allowed.index(c) for c in task.y.tolist()])
    outcome = method.loss(memories, task, (FIRST,))
    same(outcome.logits, z_t)
    twin.check(memories, outcome, ce(z_t[:, allowed], places) + ce(z_m, FIRST.y))


def test_er_ace_notes_the_classes_that_it_saw():
    method = ERACE()
    memories = memories_of(method)
    method.observe(memories, TASK, method.loss(memories, TASK, ()))
    assert memories.state["seen"].tolist() == [c in TASK.y.tolist() for c in range(CLASSES)]


# --- online EWC


def squared_gradients(network, images):
    """Mean of (∂ log p(y|x) / ∂θ)² at inference, an image at a time."""
    network = copy.deepcopy(network).eval()
    rows = []
    for i in images.index.tolist():
        p = softmax(network(images.images[i : i + 1] / 255).logits)[0, images.labels[i]]
        rows.append(vector(torch.autograd.grad(p.log(), list(network.parameters()))) ** 2)
    return torch.stack(rows).mean(0)


def test_fisher_information_of_single_images_is_exact():
    working = memories_of(EWC()).working
    before = working.weights.statistics.clone()
    torch.testing.assert_close(
        fisher(working, task_images(), batch=1), squared_gradients(working.network, task_images()), rtol=1e-3, atol=1e-7
    )
    assert torch.equal(working.weights.statistics, before)
    assert working.network.training


def test_fisher_information_of_batches_has_no_bias():
    """Random signs cancel the products of two images' gradients on average."""
    working, images = memories_of(EWC()).working, task_images()
    found = torch.stack([fisher(working, images, batch=4) for _ in range(400)])
    exact, error = squared_gradients(working.network, images), found.std(0) / 400**0.5
    far = (found.mean(0) - exact).abs() / error.clamp(min=1e-12)
    assert (far[exact > 1e-9] > 4).double().mean() < 0.005
    assert ((found[0] - exact).abs() / exact.clamp(min=1e-9)).mean() > 0.1  # a single estimate is off


def test_ewc_steps_to_the_minimum_of_linearised_loss_penalty_and_distance():
    """θ minimises g·θ + λ Σ F (θ - θ*)² + |θ - θ_0|² / 2η."""
    method, lr = EWC(penalty=3.0), 0.1
    memories = memories_of(method)
    theta, n = memories.working.weights.theta, len(memories.working.weights.theta)
    memories.state["fisher"].copy_(10 * torch.rand(n, generator=seeded(1)) ** 4)
    memories.state["anchor"].copy_(theta + 0.1 * torch.randn(n, generator=seeded(2)))
    f, anchor, start = (t.double() for t in (memories.state["fisher"], memories.state["anchor"], theta.clone()))
    memories.working.backward(method.loss(memories, TASK, ()).loss)
    g = memories.working.gradient.clone().double()
    method.adjust_gradient(memories, (), lr)
    memories.working.update(lr)
    found = theta.double()
    slope = g + 2 * 3.0 * f * (found - anchor) + (found - start) / lr
    assert slope.abs().max() < 1e-4
    assert (found - (start - lr * (g + 2 * 3.0 * f * (start - anchor)))).abs().max() > 1e-3  # no plain step


def test_ewc_holds_its_weights_and_adds_up_fisher_information():
    method = EWC(gamma=0.5)
    memories = memories_of(method)
    memories.state["fisher"].fill_(2.0)
    method.after_task(memories, task_images())
    expected = 0.5 * 2.0 + fisher(memories.working, task_images())
    torch.testing.assert_close(memories.state["fisher"], expected)
    assert torch.equal(memories.state["anchor"], memories.working.weights.theta)


@pytest.mark.parametrize("last", [1, 3])
def test_ewc_is_unchanged_if_it_is_stopped_while_it_looks_at_a_task(last):
    method, calls = EWC(gamma=0.5), []
    memories = memories_of(method)
    memories.state["fisher"].fill_(2.0)
    memories.working.backward(method.loss(memories, TASK, ()).loss)
    gradient = memories.working.gradient.clone()
    before = {name: t.clone() for name, t in memories.tensors().items()}

    def check():
        calls.append(None)
        if len(calls) == last:
            raise TimeoutError

    images = task_images()
    with pytest.raises(TimeoutError):
        method.after_task(memories, replace(images, check=check, index=images.index.repeat(9)))  # three batches
    for name, t in memories.tensors().items():
        assert torch.equal(t, before[name]), name
    assert torch.equal(memories.working.gradient, gradient)
    assert all(m.training for m in memories.working.network.modules())


# --- LwF


def test_lwf_distils_earlier_classes_from_the_network_before_the_task():
    method = LwF(alpha=1.7, temperature=3.0)
    memories = memories_of(method)
    memories.state["old"][torch.tensor([0, 3])] = True
    teacher, twin = copy.deepcopy(memories.long_term["teacher"].network).eval(), Twin(memories)
    with torch.no_grad():
        target = softmax(teacher(TASK.x).logits[:, [0, 3]] / 3.0)
    z = twin.network(TASK.x).logits
    distance = -(target * softmax(z[:, [0, 3]] / 3.0).log()).sum() / len(TASK.y)
    outcome = method.loss(memories, TASK, ())
    twin.slow.clear()  # the teacher's statistics stay; checked below
    twin.check(memories, outcome, ce(z, TASK.y) + 1.7 * distance)
    for name, live in memories.long_term["teacher"].network.named_buffers():
        assert torch.equal(live, dict(teacher.named_buffers())[name])


def test_lwf_is_taught_by_what_a_task_left():
    method = LwF()
    memories = memories_of(method)
    assert not torch.equal(memories.long_term["teacher"].weights.theta, memories.working.weights.theta)
    method.after_task(memories, task_images())
    for part in ("theta", "statistics"):
        own, other = (getattr(m.weights, part) for m in (memories.long_term["teacher"], memories.working))
        assert torch.equal(own, other)
    assert memories.state["old"].tolist() == [True] * CLASSES
    before = memories.long_term["teacher"].weights.theta.clone()
    memories.working.backward(method.loss(memories, TASK, ()).loss)
    memories.working.update(0.1)
    assert torch.equal(memories.long_term["teacher"].weights.theta, before)


# --- A-GEM


@pytest.mark.parametrize("opposed", [True, False])
def test_agem_projects_a_gradient_that_would_raise_the_loss_of_recalled_images(opposed):
    method = AGEM()
    memories = memories_of(method)
    recalled = TASK._replace(y=(TASK.y + 1) % CLASSES) if opposed else TASK  # the same images, other labels or the same
    twin = Twin(memories)
    outcome = method.loss(memories, TASK, (recalled,))
    memories.working.backward(outcome.loss)
    method.adjust_gradient(memories, (recalled,), 0.1)
    g, m = (
        vector(torch.autograd.grad(ce(twin.network(b.x).logits, b.y), list(twin.network.parameters()))).double()
        for b in (TASK, recalled)
    )
    assert (g @ m < 0) == opposed
    expected = g - (g @ m) / (m @ m) * m if opposed else g
    torch.testing.assert_close(memories.working.gradient.double(), expected, rtol=1e-3, atol=1e-5)
    if opposed:
        assert abs(memories.working.gradient.double() @ m) < 1e-3 * (m @ m)


# --- through the learner


def test_a_task_that_ends_is_given_to_the_method_with_its_images():
    """Each image of the task once, normalised and not augmented, and no other."""
    seen = []

    class Looks(EWC):
        def after_task(self, memories, images):
            seen.append(torch.cat([b.x for b in images.batches(7)]))

    digits = load("digits")
    few = torch.cat([(digits.train_labels == c).nonzero().flatten()[:20] for c in range(4)])
    stream = class_il((digits.train_images[few], digits.train_labels[few]), tasks=2, name="few")
    training = Training(network="small", width=4, epochs=1, batch=8, mean=(0.3,), std=(0.4,), pad=1)
    for _ in Learner(stream, Looks(), training).learn():
        pass
    for x, task in zip(seen, stream.tasks, strict=True):
        expected = (stream.data.train_images[task.train].float() / 255 - 0.3) / 0.4
        assert x.shape == expected.shape
        rows = [sorted(map(tuple, (1e3 * images).round().int().flatten(1).tolist())) for images in (x, expected)]
        assert rows[0] == rows[1]
        assert not torch.equal(x, expected)  # shuffled


def test_a_penalty_on_all_weights_holds_the_network():
    """With a large λ the second task hardly moves what the first one needs: SGD loses it, EWC keeps it."""
    digits = load("digits")
    stream = class_il(digits, tasks=5, name="s-digits")
    kept = {}
    for penalty in (0.0, 1e4):
        training = Training(network="small", width=8, epochs=3, lr=0.03, mean=(0.3,), std=(0.4,), pad=1, flip=False)
        learner = Learner(stream, EWC(penalty=penalty), training)
        moments = learner.learn()
        while learner.task < 2:
            next(moments)
        kept[penalty] = learner.scores["working"][1].task_il[0]
    assert kept[1e4] > kept[0.0] + 5
