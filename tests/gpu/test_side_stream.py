"""Layers that compute weight gradients on a side stream, against plain PyTorch layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.gpu.gradient_sink import GradientSink
from scommer.gpu.side_stream import record_event
from scommer.gpu.switches import without
from scommer.memory import WorkingMemory
from scommer.nn import networks
from scommer.nn.functional import conv2d_into, linear_into
from scommer.nn.weights import to_vector

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(DEVICE)


def use_plain_layers(network: nn.Module) -> None:
    """Let autograd return all gradients."""
    for m in network.modules():
        m.__dict__.pop("sink", None)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (1, 1), (1, 2)])
@pytest.mark.parametrize("side", [7, 8])
def test_conv2d_into_equals_conv2d(size: int, stride: int, side: int) -> None:
    x, w = random(4, 5, side, side), random(6, 5, size, size, seed=1)
    sink, found = GradientSink([w], [torch.empty_like(w)]), []
    for layer in (lambda a, b: conv2d_into(a, b, (stride, stride), (size // 2, size // 2), sink),
                  lambda a, b: F.conv2d(a, b, None, stride, size // 2)):  # fmt: skip
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = layer(a, b)
        gradients = torch.autograd.grad((y * random(*y.shape, seed=2)).sum(), (a, b))
        sink.side.join()
        found.append((y, *gradients))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


def test_linear_into_equals_linear() -> None:
    x, w, b = random(4, 5), random(3, 5, seed=1), random(3, seed=2)
    sink, found = GradientSink([w, b], [torch.empty_like(w), torch.empty_like(b)]), []
    for layer in (lambda *a: linear_into(*a, sink), F.linear):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        y = layer(*leaves)
        gradients = torch.autograd.grad((y * random(4, 3, seed=3)).sum(), leaves)
        sink.side.join()
        found.append((y, *gradients))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


def test_gradients_arrive_in_their_slots_with_that_of_the_first_layer_last() -> None:
    first, second = random(4, 3, 3, 3).requires_grad_(), random(2, 4, 3, 3, seed=1).requires_grad_()
    slots = [torch.full_like(w, 9) for w in (first, second)]
    sink = GradientSink([first, second], slots)
    x = random(2, 3, 5, 5, seed=2)
    y = conv2d_into(conv2d_into(x, first, (1, 1), (1, 1), sink), second, (1, 1), (1, 1), sink)
    assert sink.missing() == [0, 1]
    gradients = torch.autograd.grad(y.square().sum(), (first, second))
    sink.side.join_all_but_last()
    assert torch.equal(slots[1], gradients[1])
    sink.side.join()
    assert torch.equal(slots[0], gradients[0])
    assert sink.missing() == []
    assert sink.ended_with(first)
    assert not sink.ended_with(second)


@without("kernels")  # they have no double precision
def test_gradient_of_another_loss_leaves_the_first_gradient_unchanged() -> None:
    network = networks.build("small", (3, 6, 6), 4, torch.Generator().manual_seed(0), width=4).double().to(DEVICE)
    working, x = WorkingMemory(network), random(3, 3, 6, 6)
    before = [p.detach().clone() for p in working.parameters]
    working.backward(working(x).logits.square().sum())
    first = working.gradient.clone()
    other = working.gradient_of(working(x).logits.sum())
    assert torch.equal(working.gradient, first)
    use_plain_layers(network)
    for found, loss in ((other, working(x).logits.sum()), (first, working(x).logits.square().sum())):
        torch.testing.assert_close(found, to_vector(torch.autograd.grad(loss, working.parameters)))
    assert all(torch.equal(p, q) for p, q in zip(working.parameters, before, strict=True))


@without("kernels")  # they have no double precision
def test_a_loss_over_two_passes_sums_both_gradients() -> None:
    x, y = random(3, 3, 6, 6), random(2, 3, 6, 6, seed=1)
    found = []
    for with_sink in (True, False):
        network = networks.build("small", (3, 6, 6), 4, torch.Generator().manual_seed(0), width=4).double().to(DEVICE)
        working = WorkingMemory(network)
        if not with_sink:
            use_plain_layers(network)
        before = working.weights.theta.clone()
        loss = working(x).logits.square().sum() + 3 * working(y).logits.square().sum()
        if with_sink:
            working.backward(loss)
            working.update(0.1)
            found.append(before - working.weights.theta)
        else:
            found.append(0.1 * to_vector(torch.autograd.grad(loss, working.parameters)))
    torch.testing.assert_close(*found)


def test_a_cpu_has_no_events() -> None:
    assert record_event(torch.device("cpu")) is None
