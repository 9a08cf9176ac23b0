"""Weights as one vector against torch.optim, and augmentation against all crops and flips there are."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from scommer.engine.augment import Augment
from scommer.memory import WorkingMemory
from scommer.nn.networks import build
from scommer.nn.weights import Weights, gather, views


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(name="small", seed=0, **settings):
    return build(name, (1, 6, 6), 4, seeded(seed), width=4, **settings)


# --- weights


def as_they_lie(tensors):
    """The values of tensors end to end, a kernel's [O, I, H, W] as [O, H, W, I] (channels-last)."""
    return np.concatenate([(t.movedim(1, -1) if t.dim() == 4 else t).detach().numpy().ravel() for t in tensors])


def test_the_vector_holds_the_parameters_in_order():
    net = network()
    before, buffers = copy.deepcopy(list(net.parameters())), copy.deepcopy(list(net.buffers()))
    weights = Weights(net)
    assert np.array_equal(weights.theta.numpy(), as_they_lie(before))
    assert np.array_equal(weights.statistics.numpy(), as_they_lie(buffers))
    for p, q in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, q)  # the network itself is what it was
    assert net.stages[1][0].conv2.weight.is_contiguous(memory_format=torch.channels_last)


def test_layers_see_what_the_vector_changes():
    net = network()
    weights = Weights(net)
    weights.theta.copy_(torch.arange(len(weights.theta)))
    weights.statistics.copy_(-torch.arange(len(weights.statistics)).float())
    assert as_they_lie(net.parameters()).tolist() == list(range(len(weights.theta)))
    assert as_they_lie(net.buffers()).tolist() == [-i for i in range(len(weights.statistics))]
    assert net.head.bias.tolist() == weights.theta[-4:].tolist()


def test_the_vector_sees_what_the_layers_change():
    net = network()
    weights = Weights(net)
    with torch.no_grad():
        net.stem.weight.fill_(7.0)
        net.head.bias.fill_(8.0)
    assert (weights.theta[: net.stem.weight.numel()] == 7).all()
    assert (weights.theta[-4:] == 8).all()
    assert (weights.theta == 7).sum() == net.stem.weight.numel()
    net.train()(torch.rand(5, 1, 6, 6, generator=seeded()))
    assert weights.statistics[:4].tolist() == net.stem_norm.running_mean.tolist()
    assert weights.statistics[:4].abs().min() > 0  # a training pass moved them


def test_a_network_without_batch_norm_has_no_statistics():
    assert len(Weights(network("mlp")).statistics) == 0


def test_a_vector_is_cut_into_shapes_without_copying():
    like = [torch.rand(2, 3, 2, 1), torch.rand(5), torch.rand(4, 2), torch.rand(())]
    vector = gather(like)
    assert len(vector) == 12 + 5 + 8 + 1
    for part, t in zip(views(vector, like), like, strict=True):
        assert torch.equal(part, t)
        part.zero_()
    assert not vector.any()


def test_borrowed_statistics_are_used_and_given_back():
    net = network()
    weights = Weights(net)
    own = weights.statistics.clone()
    with weights.borrowing(torch.full_like(own, 3.0)):
        assert (net.stem_norm.running_mean == 3).all()
        assert (net.stages[1][0].norm2.running_var == 3).all()
        weights.statistics.add_(1)  # whatever happens meanwhile
    assert torch.equal(weights.statistics, own)
    assert (net.stem_norm.running_var == 1).all()


def test_borrowed_statistics_are_given_back_after_an_error():
    weights = Weights(network())
    own = weights.statistics.clone()
    with pytest.raises(ZeroDivisionError), weights.borrowing(own + 5):
        raise ZeroDivisionError
    assert torch.equal(weights.statistics, own)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("name", ["small", "mlp"])
def test_descent_is_that_of_torch(name, momentum, weight_decay):
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
    assert np.array_equal(working.weights.theta.numpy(), as_they_lie(net.parameters()))  # still views
    assert (working.weights.theta - start).abs().max() > 0.01
    assert ("velocity" in working.tensors()) == bool(momentum)


def test_what_a_loss_does_not_touch_stays():
    working = WorkingMemory(network("mlp"))
    x = torch.randn(3, 36, generator=seeded())
    working.backward(working(x).logits.sum())  # moves everything
    working.update(0.1)
    before = working.weights.theta.clone()
    working.backward(working.network.head.bias.sum())
    working.update(0.5)
    expected = before.clone()
    expected[-4:] -= 0.5
    torch.testing.assert_close(working.weights.theta, expected)


def test_working_memory_goes_on_from_its_tensors():
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


# --- augmentation

C, H, W, PAD = 2, 6, 7, 4
MEAN, STD = (0.4, 0.6), (0.25, 0.5)


def raw(n, seed=0):
    """Images whose pixels are all above 0, so that padding shows."""
    return torch.from_numpy(np.random.default_rng(seed).integers(1, 256, (n, C, H, W), dtype=np.uint8))


def every_outcome(image, pad, flip):
    """All crops of the zero-padded image, plain and mirrored: bytes -> (row, column, mirrored)."""
    padded = np.zeros((C, H + 2 * pad, W + 2 * pad), np.uint8)
    padded[:, pad : pad + H, pad : pad + W] = image
    found = {}
    for row in range(2 * pad + 1):
        for column in range(2 * pad + 1):
            crop = padded[:, row : row + H, column : column + W]
            found[crop.tobytes()] = (row, column, False)
            if flip:
                found[crop[:, :, ::-1].tobytes()] = (row, column, True)
    return found


def pixels(x):
    """Back from normalised values to bytes."""
    mean, std = (np.array(v)[:, None, None] for v in (MEAN, STD))
    exact = (x.double().numpy() * std + mean) * 255
    assert np.abs(exact - exact.round()).max() < 1e-3
    return exact.round().astype(np.uint8)


def outcomes(pad, flip, n, seed=0):
    images = raw(3)
    table = [every_outcome(image.numpy(), pad, flip) for image in images]
    assert all(len(t) == (2 * pad + 1) ** 2 * (1 + flip) for t in table)  # each outcome can be told
    which = torch.arange(n) % 3
    out = Augment(pad, flip, MEAN, STD)(images[which], seeded(seed))
    assert out.shape == (n, C, H, W)
    return [table[i][image.tobytes()] for i, image in zip(which.tolist(), pixels(out), strict=True)]


def chi_square(counts, cells):
    expected = sum(counts.values()) / cells
    return sum((counts[c] - expected) ** 2 for c in counts) / expected + (cells - len(counts)) * expected


@pytest.mark.parametrize(("pad", "flip"), [(PAD, True), (PAD, False), (0, True), (1, True)])
def test_every_crop_and_flip_is_equally_likely(pad, flip):
    cells = (2 * pad + 1) ** 2 * (1 + flip)
    found = Counter(outcomes(pad, flip, 100 * cells))
    assert len(found) == cells
    assert chi_square(found, cells) < cells - 1 + 6 * np.sqrt(2 * (cells - 1))


def test_images_of_a_batch_are_moved_apart():
    moves = outcomes(PAD, True, 4000, seed=2)
    pairs = Counter((a[0], b[0]) for a, b in zip(moves[::2], moves[1::2], strict=True))  # rows of neighbours
    assert chi_square(pairs, 81) < 80 + 6 * np.sqrt(160)


def test_padding_is_of_raw_pixels():
    out = Augment(2, False, MEAN, STD)(torch.full((200, C, H, W), 255, dtype=torch.uint8), seeded())
    for c in range(C):
        values = {round(v, 4) for v in out[:, c].unique().tolist()}
        assert values == {round((1 - MEAN[c]) / STD[c], 4), round((0 - MEAN[c]) / STD[c], 4)}


def test_bytes_and_floats_are_seen_alike():
    augment, images = Augment(PAD, True, MEAN, STD), raw(50)
    torch.testing.assert_close(augment(images, seeded(3)), augment(images.float() / 255, seeded(3)))


@pytest.mark.parametrize("as_float", [False, True])
def test_without_pad_and_flip_images_are_only_normalised(as_float):
    augment, images, g = Augment(0, False, MEAN, STD), raw(5), seeded()
    given = images.float() / 255 if as_float else images
    before, kept = g.get_state(), given.clone()
    out = augment(given, g)
    expected = images.numpy() / 255
    for c in range(C):
        assert out[:, c].numpy() == pytest.approx((expected[:, c] - MEAN[c]) / STD[c], abs=1e-5)
    assert torch.equal(g.get_state(), before)  # nothing is drawn
    assert torch.equal(given, kept)


def test_test_images_are_only_normalised():
    augment, images = Augment(PAD, True, MEAN, STD), raw(5)
    assert torch.equal(augment.normalise(images), Augment(0, False, MEAN, STD)(images, seeded()))


def test_augmentation_is_a_function_of_the_generator():
    augment, images, everyone = Augment(PAD, True, MEAN, STD), raw(40), torch.get_rng_state()
    first, again, other = (augment(images, seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), everyone)
    g = seeded(1)
    assert torch.equal(augment(images, g), first)
    assert not torch.equal(augment(images, g), first)  # the generator moved on


def test_raw_images_stay_as_they_are():
    images = raw(20)
    kept = images.clone()
    Augment(PAD, True, MEAN, STD)(images, seeded())
    assert torch.equal(images, kept)
