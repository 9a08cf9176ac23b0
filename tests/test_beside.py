"""Layers whose own gradients are found beside the backward pass are the layers that they stand for."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from scommer import networks
from scommer.beside import Beside, convolve, linear, moment
from scommer.memory import WorkingMemory
from scommer.weights import gather

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(DEVICE)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (1, 1), (1, 2)])
@pytest.mark.parametrize("side", [7, 8])
def test_a_convolution(size: int, stride: int, side: int) -> None:
    x, w = random(4, 5, side, side), random(6, 5, size, size, seed=1)
    beside, found = Beside(DEVICE), []
    for layer in (lambda a, b: convolve(a, b, (stride, stride), (size // 2, size // 2), beside),
                  lambda a, b: F.conv2d(a, b, None, stride, size // 2)):  # fmt: skip
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = layer(a, b)
        gradients = torch.autograd.grad((y * random(*y.shape, seed=2)).sum(), (a, b))
        beside.join()
        found.append((y, *gradients))
    for mine, plain in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain)


def test_a_linear_layer() -> None:
    x, w, b = random(4, 5), random(3, 5, seed=1), random(3, seed=2)
    beside, found = Beside(DEVICE), []
    for layer in (lambda *a: linear(*a, beside), F.linear):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        y = layer(*leaves)
        gradients = torch.autograd.grad((y * random(4, 3, seed=3)).sum(), leaves)
        beside.join()
        found.append((y, *gradients))
    for mine, plain in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain)


def test_gradients_are_delivered_to_their_places_the_first_layer_last() -> None:
    beside = Beside(DEVICE)
    first, second = random(4, 3, 3, 3).requires_grad_(), random(2, 4, 3, 3, seed=1).requires_grad_()
    places = [torch.full_like(w, 9) for w in (first, second)]
    beside.places = {w.data_ptr(): place for w, place in zip((first, second), places, strict=True)}
    x = random(2, 3, 5, 5, seed=2)
    y = convolve(convolve(x, first, (1, 1), (1, 1), beside), second, (1, 1), (1, 1), beside)
    gradients = torch.autograd.grad(y.square().sum(), (first, second))
    beside.join(but_last=True)
    assert torch.equal(places[1], gradients[1])
    beside.join()
    assert torch.equal(places[0], gradients[0])
    assert beside.delivered == [second.data_ptr(), first.data_ptr()]


def test_a_loss_of_two_passes_has_the_gradients_of_both() -> None:
    x, y = random(3, 3, 6, 6), random(2, 3, 6, 6, seed=1)
    found = []
    for placed in (True, False):
        network = networks.build("small", (3, 6, 6), 4, torch.Generator().manual_seed(0), width=4).double().to(DEVICE)
        working = WorkingMemory(network)
        before = working.weights.theta.clone()
        loss = working(x).logits.square().sum() + 3 * working(y).logits.square().sum()
        if placed:
            working.descend(loss, 0.1)
            found.append(before - working.weights.theta)
        else:
            working.beside.places.clear()
            found.append(0.1 * gather(torch.autograd.grad(loss, working.parameters)))
    torch.testing.assert_close(*found)


def test_a_cpu_has_no_moments() -> None:
    assert moment(torch.device("cpu")) is None
