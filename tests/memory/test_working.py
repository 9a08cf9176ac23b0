"""Working memory against torch.optim.SGD."""

import copy

import pytest
import torch
from torch.nn import functional as F

from scommer.memory import WorkingMemory
from scommer.nn.networks import build


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(name="small", seed=0):
    return build(name, (1, 6, 6), 4, seeded(seed), width=4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("name", ["small", "mlp"])
def test_updates_equal_those_of_torch(name, momentum, weight_decay):
    net = network(name).double()
    other = copy.deepcopy(net).train()
    working = WorkingMemory(net, momentum, weight_decay)
    optimiser = torch.optim.SGD(other.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    start = working.weights.theta.clone()
    for step in range(5):
        x = torch.randn(6, 1, 6, 6, generator=seeded(step), dtype=torch.float64)
        y = torch.randint(4, (6,), generator=seeded(step))
        working.backward(F.cross_entropy(working(x).logits, y))
        working.update(0.1)
        optimiser.zero_grad()
        F.cross_entropy(other(x).logits, y).backward()
        optimiser.step()
        for p, q in zip(net.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
    parameters = [(p.movedim(1, -1) if p.dim() == 4 else p).detach().flatten() for p in net.parameters()]
    assert torch.equal(working.weights.theta, torch.cat(parameters))  # they are still views
    assert (working.weights.theta - start).abs().max() > 0.01
    assert ("velocity" in working.tensors()) == bool(momentum)


def test_weights_that_the_loss_does_not_depend_on_are_unchanged():
    working = WorkingMemory(network("mlp"))
    x = torch.randn(3, 36, generator=seeded())
    working.backward(working(x).logits.sum())  # a gradient for every weight
    working.update(0.1)
    before = working.weights.theta.clone()
    working.backward(working.network.head.bias.sum())
    working.update(0.5)
    expected = before.clone()
    expected[-4:] -= 0.5
    torch.testing.assert_close(working.weights.theta, expected)


def test_a_restored_memory_continues_identically():
    def train(working, steps):
        for step in steps:
            x = torch.randn(6, 1, 6, 6, generator=seeded(step))
            working.backward(F.cross_entropy(working(x).logits, torch.arange(6) % 4))
            working.update(0.1)

    whole, first, second = (WorkingMemory(network(seed=s), 0.9) for s in (0, 0, 1))
    train(whole, range(6))
    train(first, range(3))
    for name, live in second.tensors().items():
        live.copy_(first.tensors()[name])
    train(second, range(3, 6))
    for name, live in second.tensors().items():
        assert torch.equal(live, whole.tensors()[name]), name
    assert torch.equal(second.network(x := torch.ones(2, 1, 6, 6)).logits, whole.network(x).logits)
