"""The paper's ResNet-18, sparse or dense, with width, depth and stages as numbers; and an MLP."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.errors import UsageError, unknown
from scommer.sparse_coding import Threshold, k_wta, per_stage, winners

Parts = tuple[int, ...] | None
Keep = Sequence[Tensor | None] | None


class Response(NamedTuple):
    """What a network answers: logits [B, C], and which units of each stage were active, [B, N] bool."""

    logits: Tensor
    fired: list[Tensor]


class BatchNorm(nn.Module):
    """Batch normalisation in which each part of a batch may have statistics of its own.

    With `parts` (sizes that sum to the batch) one pass equals as many passes one after the other: each
    part is normalised by its own mean and variance, and the running statistics follow part by part.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, units: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.empty(units))
        self.bias = nn.Parameter(torch.empty(units))
        self.register_buffer("running_mean", torch.empty(units))
        self.register_buffer("running_var", torch.empty(units))

    def forward(self, x: Tensor, parts: Parts = None) -> Tensor:
        if not self.training or parts is None or len(parts) == 1:
            return self._normalise(x)
        return torch.cat([self._normalise(part) for part in x.split(parts)])

    def _normalise(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            raise UsageError("one value a filter has no variance to normalise by: raise batch, replay or buffer")
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training, self.momentum, self.eps,
        )  # fmt: skip


class Activation:
    """ReLU of the k winners (Algorithm 2), or plain ReLU where no ratio is given."""

    def __init__(self, ratio: float | None, threshold: Threshold = "k") -> None:
        self.ratio, self.threshold = ratio, threshold

    def __call__(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is not None:  # dropout comes first: a silenced unit scores 0
            x = x * keep.reshape(keep.shape + (1,) * (x.dim() - 2)).to(x.dtype)
        return F.relu(x if self.ratio is None else k_wta(x, self.ratio, self.threshold))


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut. Ends with the bare sum: what follows is its stage's affair."""

    def __init__(self, inputs: int, units: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, units, 3, stride, 1, bias=False)
        self.norm1 = BatchNorm(units)
        self.conv2 = nn.Conv2d(units, units, 3, 1, 1, bias=False)
        self.norm2 = BatchNorm(units)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or inputs != units:
            self.shortcut = nn.Conv2d(inputs, units, 1, stride, bias=False)
            self.shortcut_norm = BatchNorm(units)
        self.activation = activation

    def forward(self, x: Tensor, parts: Parts) -> Tensor:
        y: Tensor = self.activation(self.norm1(self.conv1(x), parts))
        y = self.norm2(self.conv2(y), parts)
        shortcut: Tensor = x if self.shortcut is None else self.shortcut_norm(self.shortcut(x), parts)
        return y + shortcut


class ResNet(nn.Module):
    """A residual network for small images; the defaults are the paper's ResNet-18 without its ratios.

    `active` gives the share of active filters of each stage, None a dense network. A sparse stage
    activates its output at its very end (`activate="stage"`, as published) or after every block
    (`activate="block"`, as the text has it); a dense one after every block, as usual.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        width: int = 64,
        depth: int = 2,
        stages: int = 4,
        active: float | Sequence[float] | None = None,
        activate: Literal["stage", "block"] = "stage",
        threshold: Threshold = "k",
    ) -> None:
        super().__init__()
        self.units = tuple(width * 2**l for l in range(stages))
        self.activations = _activations(self.units, active, threshold)
        self.every_block = active is None or activate == "block"
        self.stem = nn.Conv2d(inputs, width, 3, 1, 1, bias=False)
        self.stem_norm = BatchNorm(width)
        self.stages = nn.ModuleList()
        before = width
        for l, units in enumerate(self.units):
            blocks = nn.ModuleList()
            for b in range(depth):
                blocks.append(Block(before, units, 2 if l and not b else 1, self.activations[l]))
                before = units
            self.stages.append(blocks)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> Response:
        keep = keep or [None] * len(self.units)
        x = F.relu(self.stem_norm(self.stem(x), parts))
        fired = []
        for stage, activation, mask in zip(self.stages, self.activations, keep, strict=True):
            *inner, last = stage.children()
            for block in inner:
                x = block(x, parts)
                x = activation(x) if self.every_block else x
            x = activation(last(x, parts), mask)
            fired.append(x.sum((2, 3)) > 0)
        return Response(self.head(x.mean((2, 3))), fired)


class MLP(nn.Module):
    """A perceptron of hidden layers, each a stage of `width` units; images are flattened."""

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        width: int = 256,
        stages: int = 2,
        active: float | Sequence[float] | None = None,
        threshold: Threshold = "k",
    ) -> None:
        super().__init__()
        self.units = (width,) * stages
        self.activations = _activations(self.units, active, threshold)
        sizes = (inputs, *self.units)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> Response:
        keep = keep or [None] * len(self.units)
        x, fired = x.flatten(1), []
        for layer, activation, mask in zip(self.layers, self.activations, keep, strict=True):
            x = activation(layer(x), mask)
            fired.append(x > 0)
        return Response(self.head(x), fired)


def _activations(
    units: Sequence[int], active: float | Sequence[float] | None, threshold: Threshold
) -> list[Activation]:
    if active is None:
        return [Activation(None)] * len(units)
    ratios = per_stage("active", active, len(units))
    for ratio, n in zip(ratios, units, strict=True):
        if winners(ratio, n) == 1 and threshold == "k-1":
            raise UsageError(f"active ratio {ratio} of {n} units leaves none under threshold k-1: raise it")
    return [Activation(ratio, threshold) for ratio in ratios]


# name: (width, depth, stages) where none are given
SIZES = {"resnet18": (64, 2, 4), "small": (16, 1, 2), "mlp": (256, 1, 2)}


def build(
    name: str,
    image_shape: tuple[int, int, int],
    classes: int,
    generator: torch.Generator,
    *,
    width: int | None = None,
    depth: int | None = None,
    stages: int | None = None,
    active: float | Sequence[float] | None = None,
    activate: Literal["stage", "block"] = "stage",
    threshold: Threshold = "k",
) -> nn.Module:
    """A network by name, initialised from `generator` alone."""
    if name not in SIZES:
        raise unknown("network", name, SIZES)
    size = [given or usual for given, usual in zip((width, depth, stages), SIZES[name], strict=True)]
    with torch.device("meta"):  # nothing is drawn from the global generator
        network: nn.Module
        if name == "mlp":
            network = MLP(
                math.prod(image_shape), classes,
                width=size[0], stages=size[2], active=active, threshold=threshold,
            )  # fmt: skip
        else:
            network = ResNet(
                image_shape[0], classes, width=size[0], depth=size[1], stages=size[2],
                active=active, activate=activate, threshold=threshold,
            )  # fmt: skip
    network.to_empty(device="cpu")
    initialise(network, generator)
    return network


def units_of(network: nn.Module) -> tuple[int, ...]:
    """How many units each stage of a network has."""
    units: tuple[int, ...] = network.units  # type: ignore[assignment]
    return units


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's usual initialisation of each layer, drawn from an own generator."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
            if module.bias is not None:
                bound = 1 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.bias, -bound, bound, generator=generator)
        elif isinstance(module, BatchNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
            nn.init.zeros_(module.running_mean)
            nn.init.ones_(module.running_var)
