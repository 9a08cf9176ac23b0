"""The vector of all weights of a network against its parameters and buffers."""

import copy

import numpy as np
import pytest
import torch

from scommer.nn.networks import build
from scommer.nn.weights import Weights, to_vector, views


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(name="small"):
    return build(name, (1, 6, 6), 4, seeded(), width=4)


def in_memory_order(tensors):
    """Concatenate the values of tensors, with convolution weights [O, I, H, W] in the order [O, H, W, I]."""
    return np.concatenate([(t.movedim(1, -1) if t.dim() == 4 else t).detach().numpy().ravel() for t in tensors])


def test_the_vector_holds_the_parameters_in_order():
    net = network()
    before, buffers = copy.deepcopy(list(net.parameters())), copy.deepcopy(list(net.buffers()))
    weights = Weights(net)
    assert np.array_equal(weights.theta.numpy(), in_memory_order(before))
    assert np.array_equal(weights.statistics.numpy(), in_memory_order(buffers))
    for p, q in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, q)  # the network is unchanged
    assert net.stages[1][0].conv2.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_change_of_the_vector_changes_the_layers():
    net = network()
    weights = Weights(net)
    weights.theta.copy_(torch.arange(len(weights.theta)))
    weights.statistics.copy_(-torch.arange(len(weights.statistics)).float())
    assert in_memory_order(net.parameters()).tolist() == list(range(len(weights.theta)))
    assert in_memory_order(net.buffers()).tolist() == [-i for i in range(len(weights.statistics))]
    assert net.head.bias.tolist() == weights.theta[-4:].tolist()


def test_a_change_of_the_layers_changes_the_vector():
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
    assert weights.statistics[:4].abs().min() > 0  # updated by the training pass


def test_a_network_without_batch_norm_has_no_statistics():
    assert len(Weights(network("mlp")).statistics) == 0


def test_views_of_a_vector_have_the_shapes_and_share_its_memory():
    like = [torch.rand(2, 3, 2, 1), torch.rand(5), torch.rand(4, 2), torch.rand(())]
    vector = to_vector(like)
    assert len(vector) == 12 + 5 + 8 + 1
    for part, t in zip(views(vector, like), like, strict=True):
        assert torch.equal(part, t)
        part.zero_()
    assert not vector.any()


def test_other_statistics_are_used_and_then_undone():
    net = network()
    weights = Weights(net)
    own = weights.statistics.clone()
    with weights.using_statistics(torch.full_like(own, 3.0)):
        assert (net.stem_norm.running_mean == 3).all()
        assert (net.stages[1][0].norm2.running_var == 3).all()
        weights.statistics.add_(1)  # is undone
    assert torch.equal(weights.statistics, own)
    assert (net.stem_norm.running_var == 1).all()


def test_statistics_are_restored_after_an_error():
    weights = Weights(network())
    own = weights.statistics.clone()
    with pytest.raises(ZeroDivisionError), weights.using_statistics(own + 5):
        raise ZeroDivisionError
    assert torch.equal(weights.statistics, own)
