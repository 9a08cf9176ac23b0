"""Networks against forward passes written with torch.nn.functional."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scommer.errors import UsageError
from scommer.nn.layers import BatchNorm
from scommer.nn.networks import NETWORKS, Architecture, build, units_of

PAPER = (0.9, 0.9, 0.9, 0.8)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(name="resnet18", shape=(3, 32, 32), classes=10, seed=0, **settings):
    """Build a network in double precision with random batch-norm parameters and statistics."""
    net = build(name, shape, classes, seeded(seed), **settings).double()
    g = seeded(seed + 100)
    for module in net.modules():
        if isinstance(module, BatchNorm):
            for t in (module.weight.data, module.running_var):
                t.copy_(0.5 + torch.rand(t.shape, generator=g, dtype=t.dtype))
            for t in (module.bias.data, module.running_mean):
                t.copy_(0.3 * torch.randn(t.shape, generator=g, dtype=t.dtype))
    return net


def small(**settings):
    return network(**{"name": "small", "shape": (2, 8, 8), "classes": 5, "width": 6, "depth": 2, **settings})


def images(*shape, seed=5):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


# --- the reference: plain functions of named weights


def top_filters(x, ratio):
    """ReLU of the int(ratio·N) filters with the largest Σ|x|, for each sample."""
    if ratio is None:
        return F.relu(x)
    k, out = int(ratio * x.shape[1]), torch.zeros_like(x)
    for i in range(len(x)):
        best = sorted(range(x.shape[1]), key=lambda j: -x[i, j].abs().sum().item())[:k]
        out[i, best] = F.relu(x[i, best])
    return out


def reference(net, x, stages, depth, active=None, every_block=True, keep=None, training=True):
    """Return the logits and stage outputs of a CIFAR ResNet with the weights of `net`."""
    w = net.state_dict()

    def norm(x, name):
        mean, var = (w[f"{name}.running_{s}"].clone() for s in ("mean", "var"))
        return F.batch_norm(x, mean, var, w[f"{name}.weight"], w[f"{name}.bias"], training, 0.1, 1e-5)

    def conv(x, name, stride=1, padding=1):
        return F.conv2d(x, w[f"{name}.weight"], None, stride, padding)

    x, outputs = F.relu(norm(conv(x, "stem"), "stem_norm")), []
    for l in range(stages):
        ratio = None if active is None else active[l]
        for b in range(depth):
            at = f"stages.{l}.{b}"
            stride = 2 if l > 0 and b == 0 else 1
            y = top_filters(norm(conv(x, f"{at}.conv1", stride), f"{at}.norm1"), ratio)
            y = norm(conv(y, f"{at}.conv2"), f"{at}.norm2")
            if f"{at}.shortcut.weight" in w:
                x = norm(conv(x, f"{at}.shortcut", stride, 0), f"{at}.shortcut_norm")
            x = y + x
            if b == depth - 1 and keep is not None and keep[l] is not None:
                x = x * keep[l][:, :, None, None]
            if b == depth - 1 or every_block:
                x = top_filters(x, ratio)
        outputs.append(x)
    return F.linear(x.mean((2, 3)), w["head.weight"], w["head.bias"]), outputs


def assert_agrees(output, expected):
    logits, outputs = expected
    torch.testing.assert_close(output.logits, logits, rtol=1e-9, atol=1e-9)
    for fired, stage in zip(output.fired, outputs, strict=True):
        assert torch.equal(fired, stage.flatten(2).sum(2) > 0)


# --- shape


@pytest.mark.parametrize("active", [None, PAPER])
def test_resnet18_has_the_published_size(active):
    def conv(inputs, outputs, size):
        return inputs * outputs * size * size + 2 * outputs  # with its batch norm

    expected, before = conv(3, 64, 3), 64
    for width in (64, 128, 256, 512):
        expected += conv(before, width, 3) + 3 * conv(width, width, 3)
        expected += conv(before, width, 1) if before != width else 0
        before = width
    expected += 512 * 10 + 10
    net = build("resnet18", (3, 32, 32), 10, seeded(), active=active)
    assert sum(p.numel() for p in net.parameters()) == expected == 11_173_962
    assert units_of(net) == (64, 128, 256, 512)


@pytest.mark.parametrize("training", [True, False])
def test_dense_resnet18_equals_the_standard_one(training):
    net, x = network().train(training), images(3, 3, 32, 32)
    assert_agrees(net(x), reference(net, x, stages=4, depth=2, training=training))


def test_sparse_resnet18_equals_the_published_one():
    net, x = network(active=PAPER), images(3, 3, 32, 32)
    keep = [None, None, None, (torch.rand(3, 512, generator=seeded(1)) < 0.7).double()]
    assert_agrees(net(x, keep), reference(net, x, stages=4, depth=2, active=PAPER, every_block=False, keep=keep))


@pytest.mark.parametrize("activate", ["stage", "block"])
@pytest.mark.parametrize("training", [True, False])
def test_sparse_activations_are_at_the_end_of_each_stage_or_block(activate, training):
    active = (0.7, 0.5, 0.3)
    net = small(stages=3, depth=3, active=active, activate=activate).train(training)
    x = images(4, 2, 8, 8)
    keep = [(torch.rand(4, n, generator=seeded(n)) < 0.6).double() for n in (6, 12, 24)]
    settings = {"stages": 3, "depth": 3, "active": active, "every_block": activate == "block", "training": training}
    assert_agrees(net(x), reference(net, x, **settings))
    assert_agrees(net(x, keep), reference(net, x, keep=keep, **settings))


def test_dropout_masks_apply_to_a_dense_network_too():
    net, x = small(), images(4, 2, 8, 8)
    keep = [None, (torch.rand(4, 12, generator=seeded()) < 0.5).double()]
    output = net(x, keep)
    assert_agrees(output, reference(net, x, stages=2, depth=2, keep=keep))
    assert not output.fired[1][keep[1] == 0].any()


def test_a_network_with_fewer_stages_takes_the_last_ratios():
    net, x = small(active=(0.1, 0.2, 0.8, 0.4)), images(4, 2, 8, 8)
    assert_agrees(net(x), reference(net, x, stages=2, depth=2, active=(0.8, 0.4), every_block=False))


def test_the_threshold_of_the_text_activates_one_unit_fewer():
    text, default = small(active=(1.0, 0.5), threshold="k-1"), small(active=(1.0, 0.5))
    x = images(6, 2, 8, 8)
    one_fewer = small(active=(5 / 6, 5 / 12))  # than 6 of 6, and 6 of 12
    torch.testing.assert_close(text(x).logits, one_fewer(x).logits)
    assert not torch.allclose(text(x).logits, default(x).logits)


@pytest.mark.parametrize("depth", [1, 3])
def test_depth_and_stages_can_be_chosen(depth):
    net, x = small(depth=depth, stages=3), images(2, 2, 8, 8)
    assert_agrees(net(x), reference(net, x, stages=3, depth=depth))
    assert units_of(net) == (6, 12, 24)


# --- parts


def statistics(net):
    return torch.cat([b.flatten() for b in net.buffers()])


def gradients(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()])


@pytest.mark.parametrize("parts", [(4, 4), (5, 3), (2, 5, 3), (1, 6)])
@pytest.mark.parametrize("active", [None, (0.7, 0.5)])
def test_one_pass_by_parts_equals_a_pass_for_each_part(parts, active):
    by_parts, separate = small(active=active), small(active=active)
    x = images(sum(parts), 2, 8, 8)
    x[parts[0] :] = 2 * x[parts[0] :] + 1  # different statistics in each part
    y = torch.arange(len(x)) % 5
    keep = [None, (torch.rand(len(x), 12, generator=seeded(3)) < 0.8).double()]
    output = by_parts(x, keep, parts)
    weights = torch.arange(1.0, len(parts) + 1, dtype=torch.float64)
    logits = output.logits.split(parts)
    sum(w * F.cross_entropy(z, t) for w, z, t in zip(weights, logits, y.split(parts), strict=True)).backward()
    start = 0
    for w, z, n in zip(weights, logits, parts, strict=True):
        rows = slice(start, start + n)
        single = separate(x[rows], [None, keep[1][rows]])
        torch.testing.assert_close(z, single.logits)
        for fired, expected in zip(output.fired, single.fired, strict=True):
            assert torch.equal(fired[rows], expected)
        (w * F.cross_entropy(single.logits, y[rows])).backward()
        start += n
    torch.testing.assert_close(gradients(by_parts), gradients(separate))
    torch.testing.assert_close(statistics(by_parts), statistics(separate))
    joint = small(active=active)
    assert not torch.allclose(joint(x, keep).logits, output.logits)  # a joint pass differs
    assert not torch.allclose(statistics(joint), statistics(by_parts))


def test_one_part_equals_the_whole_batch():
    a, b, x = small(), small(), images(4, 2, 8, 8)
    assert torch.equal(a(x, parts=(4,)).logits, b(x).logits)
    assert torch.equal(statistics(a), statistics(b))


def test_evaluation_ignores_parts():
    net, x = small().eval(), images(8, 2, 8, 8)
    before = statistics(net).clone()
    assert torch.equal(net(x, parts=(5, 3)).logits, net(x).logits)
    torch.testing.assert_close(net(x[:3]).logits, net(x).logits[:3])  # independent of the rest of the batch
    assert torch.equal(statistics(net), before)


def test_batch_norm_by_parts_against_numpy():
    norm = BatchNorm(3).double()
    x = images(5, 3, 2, 2).numpy()
    with torch.no_grad():
        for t, value in ((norm.weight, 2), (norm.bias, 1), (norm.running_mean, 4), (norm.running_var, 9)):
            t.fill_(value)
        out = norm(torch.from_numpy(x), parts=(2, 3)).x.numpy()
    mean, var = np.full(3, 4.0), np.full(3, 9.0)
    for part, normalised in ((x[:2], out[:2]), (x[2:], out[2:])):
        m, biased, unbiased = part.mean((0, 2, 3)), part.var((0, 2, 3)), part.var((0, 2, 3), ddof=1)
        expected = 2 * (part - m[:, None, None]) / np.sqrt(biased + 1e-5)[:, None, None] + 1
        assert normalised == pytest.approx(expected)
        mean, var = 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * unbiased
    assert norm.running_mean.numpy() == pytest.approx(mean)
    assert norm.running_var.numpy() == pytest.approx(var)


# --- MLP


def layer(x, w, name):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


@pytest.mark.parametrize("active", [None, (0.6, 0.3)])
def test_mlp_against_matrix_products(active):
    net, x = network("mlp", (2, 3, 4), 5, width=10, stages=2, active=active), images(7, 2, 3, 4)
    assert units_of(net) == (10, 10)
    keep = [(torch.rand(7, 10, generator=seeded(2)) < 0.7).double(), None]
    w, h, fired = net.state_dict(), x.reshape(7, 24), []
    for l, mask in enumerate(keep):
        h = layer(h, w, f"layers.{l}") * (1 if mask is None else mask)
        if active:
            limit = h.abs().sort(1, descending=True).values[:, int(active[l] * 10)]
            h = h * (h.abs() > limit[:, None])
        h = h.clamp(min=0)
        fired.append(h > 0)
    output = net(x, keep, parts=(3, 4))  # parts have no effect without batch norm
    torch.testing.assert_close(output.logits, layer(h, w, "head"))
    assert all(torch.equal(a, b) for a, b in zip(output.fired, fired, strict=True))


def test_a_winner_with_a_negative_value_does_not_fire():
    net = build("mlp", (1, 1, 3), 2, seeded(), width=3, stages=1, active=(2 / 3,))
    with torch.no_grad():
        net.layers[0].weight.copy_(torch.eye(3))
        net.layers[0].bias.zero_()
    fired = net(torch.tensor([[-5.0, 2.0, 1.0], [3.0, 2.0, 1.0], [-5.0, -4.0, 1.0]])).fired[0]
    assert fired.tolist() == [[False, True, False], [True, True, False], [False, False, False]]


# --- initialisation


def test_initialisation_leaves_the_global_generator_unchanged():
    before = torch.get_rng_state()
    for name in ("small", "mlp"):
        build(name, (1, 8, 8), 3, seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_initialisation_depends_only_on_the_given_generator():
    def weights(seed):
        torch.manual_seed(seed + 17)  # has no effect
        return torch.cat([p.flatten() for p in build("small", (1, 8, 8), 3, seeded(seed)).parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_initialisation_has_the_distribution_of_pytorch():
    net = build("small", (3, 8, 8), 10, seeded(), width=48)
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 7
    for m in layers:
        fan_in = m.weight.shape[1] * (math.prod(m.kernel_size) if isinstance(m, nn.Conv2d) else 1)
        bound, w = 1 / math.sqrt(fan_in), m.weight.detach()
        assert 0.99 * bound < w.abs().max() <= bound * (1 + 1e-6)
        sigma = bound / math.sqrt(3) / math.sqrt(w.numel())
        assert abs(w.mean()) < 5 * sigma
        assert w.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    bound = 1 / math.sqrt(96)
    bias = net.head.bias.detach()
    assert bias.abs().max() <= bound
    assert bias.std() > 0.3 * bound
    for m in net.modules():
        if isinstance(m, BatchNorm):
            assert (m.weight == 1).all()
            assert (m.running_var == 1).all()
            assert not m.bias.any()
            assert not m.running_mean.any()


def test_sparse_and_dense_networks_start_with_the_same_weights():
    dense, sparse = build("small", (1, 8, 8), 3, seeded()), build("small", (1, 8, 8), 3, seeded(), active=(0.9, 0.8))
    for a, b in zip(dense.parameters(), sparse.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_deep_copy_computes_the_same():
    net, x = small(active=(0.9, 0.8)), images(4, 2, 8, 8)
    other = copy.deepcopy(net)
    assert torch.equal(net(x).logits, other(x).logits)


# --- networks from outside


class Foreign(nn.Module):
    """Layers of PyTorch, one of them with random weights of its own."""

    def __init__(self, image_shape, classes, *, width, depth, stages, active, activate, threshold):
        super().__init__()
        self.units = (width,)
        self.first = nn.Linear(math.prod(image_shape), width)
        self.norm = nn.GroupNorm(2, width)
        self.words = nn.Embedding(3, width)
        self.head = nn.Linear(width, classes)


class WithoutReset(nn.Module):
    def __init__(self, *_, **__):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


def test_other_layers_are_initialised_by_reset_parameters(monkeypatch):
    monkeypatch.setitem(NETWORKS, "foreign", Architecture(Foreign, 4, 1, 1))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, same, other = (build("foreign", (1, 2, 2), 3, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.words.weight, same.words.weight)
    assert not torch.equal(one.words.weight, other.words.weight)
    assert one.norm.weight.tolist() == [1] * 4
    assert one.norm.bias.tolist() == [0] * 4
    assert build("foreign", (1, 2, 2), 3, torch.Generator(), width=6).units == (6,)


def test_initialisation_leaves_the_generators_of_gpus_unchanged(monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("seeds all GPUs"))
    build("small", (1, 8, 8), 3, seeded(), turned=True)
    with pytest.raises(pytest.fail.Exception, match="seeds all GPUs"):
        torch.manual_seed(0)


def test_weights_without_reset_parameters_are_an_error(monkeypatch):
    monkeypatch.setitem(NETWORKS, "own", Architecture(WithoutReset, 4, 1, 1))
    with pytest.raises(UsageError, match=r"WithoutReset .* reset_parameters"):
        build("own", (1, 2, 2), 3, torch.Generator())


# --- errors


def test_an_unknown_network_is_an_error_that_suggests_a_name():
    with pytest.raises(UsageError, match="unknown network 'resnet81': did you mean 'resnet18'"):
        build("resnet81", (3, 32, 32), 10, seeded())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"active": (0.9, 1.5)}, "active = 1.5"),
        ({"active": (0.0, 0.9)}, "active = 0.0"),
        ({"active": (0.9, 0.01)}, "active = 0.01 leaves none of 32 units"),
        ({"active": (0.9,)}, "active has 1 values, but the network has 2 stages"),
        ({"active": (0.9, 0.04), "threshold": "k-1"}, "active = 0.04 leaves no unit of 32 .* k-1"),
    ],
)
@pytest.mark.parametrize("name", ["small", "mlp"])
def test_invalid_ratios_are_an_error_when_the_network_is_built(name, settings, message):
    with pytest.raises(UsageError, match=message):
        build(name, (1, 8, 8), 3, seeded(), **settings, **({"width": 32} if name == "mlp" else {}))


def test_batch_norm_of_a_single_value_is_an_error():
    """One image with maps of one pixel has no variance."""
    network = build("resnet18", (3, 8, 8), 2, torch.Generator().manual_seed(0), width=4, depth=1)
    with pytest.raises(UsageError, match="raise batch, replay or buffer"):
        network(torch.ones(1, 3, 8, 8))
    assert network.eval()(torch.ones(1, 3, 8, 8)).logits.shape == (1, 2)
