"""The paper's ResNet-18, sparse or dense, with width, depth and stages as numbers; and an MLP."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.beside import Beside, convolution, convolve, linear
from scommer.device import fuses
from scommer.errors import UsageError, unknown
from scommer.sparse_coding import Threshold, k_wta, per_stage, rank, winners

Parts = tuple[int, ...] | None
Keep = Sequence[Tensor | None] | None  # masks [B, N] of 0 and 1


class Response(NamedTuple):
    """What a network answers: logits [B, C], and which units of each stage were active, [B, N] bool."""

    logits: Tensor
    fired: list[Tensor]


class Signal(NamedTuple):
    """What a layer passes on, twice: to the next convolution, and past it to the residual sum.

    Both are the same values; on a GPU each has a gradient of its own, which are added up where they are needed.
    """

    x: Tensor
    skip: Tensor
    fired: Tensor | None = None  # [B, N] bool, where asked for
    pooled: Tensor | None = None  # [B, N] mean over the map, where it is at hand


class Activation:
    """ReLU of the k winners (Algorithm 2), or plain ReLU where no ratio is given."""

    def __init__(self, ratio: float | None, threshold: Threshold = "k") -> None:
        self.ratio, self.threshold = ratio, threshold

    def __call__(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is not None:  # dropout comes first: a silenced unit scores 0
            x = x * keep.reshape(keep.shape + (1,) * (x.dim() - 2)).to(x.dtype)
        return F.relu(x if self.ratio is None else k_wta(x, self.ratio, self.threshold))

    def rank(self, units: int) -> int:
        """The rank of the score that a winner must beat; 0 where all win."""
        return 0 if self.ratio is None else rank(self.ratio, units, self.threshold)


RELU = Activation(None)
MOST_PARTS = 3  # that the fused kernels know


class BatchNorm(nn.Module):
    """Batch normalisation, in which each part of a batch may have statistics of its own, and what follows it.

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

    def forward(
        self,
        x: Tensor,
        parts: Parts = None,
        *,
        plus: Tensor | None = None,  # added when normalised
        activation: Activation | None = None,
        keep: Tensor | None = None,
        tell: bool = False,  # which units fired
    ) -> Signal:
        parts = parts if parts and self.training else (len(x),)
        if self.training and any(n * x[0, 0].numel() <= 1 for n in parts):
            raise UsageError("one value a filter has no variance to normalise by: raise batch, replay or buffer")
        if fuses(x) and (self.training or not torch.is_grad_enabled()) and len(parts) <= MOST_PARTS:
            from scommer import kernels

            rank = activation.rank(x.shape[1]) if activation else 0
            plan = kernels.Plan(parts, self.eps, self.momentum, activation is not None, rank, tell)
            answer = kernels.normalise if self.training else kernels.infer
            return Signal(*answer(
                x, self.weight, self.bias, self.running_mean, self.running_var, plan, plus, keep
            ))  # fmt: skip
        y = self._normalise(x) if len(parts) == 1 else torch.cat([self._normalise(part) for part in x.split(parts)])
        y = y if plus is None else y + plus
        y = activation(y, keep) if activation else y
        return Signal(y, y, y.sum((2, 3)) > 0 if tell else None)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training, self.momentum, self.eps,
        )  # fmt: skip


class Conv(nn.Conv2d):
    """A convolution without bias, whose weight gradient may be found beside the backward pass."""

    beside: Beside | None = None

    def __init__(self, inputs: int, units: int, size: int, stride: int) -> None:
        super().__init__(inputs, units, size, stride, size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.beside and torch.is_grad_enabled():
            return convolve(x, self.weight, self.stride, self.padding, self.beside)  # type: ignore[arg-type]
        if not torch.is_grad_enabled():
            return convolution(x, self.weight, self.stride, self.padding)  # type: ignore[arg-type]
        return super().forward(x)


class Linear(nn.Linear):
    """A linear layer, whose own gradients may be found beside the backward pass."""

    beside: Beside | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.beside and torch.is_grad_enabled():
            return linear(x, self.weight, self.bias, self.beside)
        return super().forward(x)


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut. What follows their sum is the stage's affair."""

    def __init__(self, inputs: int, units: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.conv1 = Conv(inputs, units, 3, stride)
        self.norm1 = BatchNorm(units)
        self.conv2 = Conv(units, units, 3, 1)
        self.norm2 = BatchNorm(units)
        self.shortcut: Conv | None = None
        if stride != 1 or inputs != units:
            self.shortcut = Conv(inputs, units, 1, stride)
            self.shortcut_norm = BatchNorm(units)
        self.activation = activation

    def forward(
        self, signal: Signal, parts: Parts, after: Activation | None, keep: Tensor | None = None, tell: bool = False
    ) -> Signal:
        y: Tensor = self.norm1(self.conv1(signal.x), parts, activation=self.activation).x
        skip: Tensor = signal.skip
        if self.shortcut is not None:
            skip = self.shortcut_norm(self.shortcut(skip), parts).x
        sum_: Signal = self.norm2(self.conv2(y), parts, plus=skip, activation=after, keep=keep, tell=tell)
        return sum_


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
        self.stem = Conv(inputs, width, 3, 1)
        self.stem_norm = BatchNorm(width)
        self.stages = nn.ModuleList()
        before = width
        for l, units in enumerate(self.units):
            blocks = nn.ModuleList()
            for b in range(depth):
                blocks.append(Block(before, units, 2 if l and not b else 1, self.activations[l]))
                before = units
            self.stages.append(blocks)
        self.head = Linear(before, classes)

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> Response:
        keep = keep or [None] * len(self.units)
        signal = self.stem_norm(self.stem(x.to(self.stem.weight.dtype)), parts, activation=RELU)
        fired = []
        for stage, activation, mask in zip(self.stages, self.activations, keep, strict=True):
            *inner, last = stage.children()
            for block in inner:
                signal = block(signal, parts, activation if self.every_block else None)
            signal = last(signal, parts, activation, mask, tell=True)
            fired.append(signal.fired)
        pooled = signal.x.mean((2, 3), dtype=self.head.weight.dtype) if signal.pooled is None else signal.pooled
        return Response(self.head(pooled), fired)


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
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.head = Linear(sizes[-1], classes)

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> Response:
        keep = keep or [None] * len(self.units)
        x, fired = x.flatten(1).to(self.head.weight.dtype), []
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
