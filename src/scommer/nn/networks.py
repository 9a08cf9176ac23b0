"""The paper's ResNet-18, sparse or dense, with width, depth and stages as numbers; and an MLP."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from scommer.errors import UsageError, unknown
from scommer.nn.layers import RELU, Activation, BatchNorm, Conv, Linear, Parts, Signal
from scommer.nn.sparse_coding import Threshold, per_stage, winners

Keep = Sequence[Tensor | None] | None  # masks [B, N] of 0 and 1


class Response(NamedTuple):
    """What a network answers: logits [B, C], and which units of each stage were active, [B, N] bool."""

    logits: Tensor
    fired: list[Tensor]


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
        self,
        signal: Signal,
        parts: Parts,
        after: Activation | None,
        keep: Tensor | None = None,
        return_fired: bool = False,
    ) -> Signal:
        y: Tensor = self.norm1(self.conv1(signal.x), parts, activation=self.activation).x
        skip: Tensor = signal.skip
        if self.shortcut is not None:
            skip = self.shortcut_norm(self.shortcut(skip), parts).x
        y = self.conv2(y)
        added: Signal = self.norm2(y, parts, plus=skip, activation=after, keep=keep, return_fired=return_fired)
        return added


class ResNet(nn.Module):
    """A residual network for small images, as the paper's ResNet-18.

    `active` gives the share of active filters of each stage, None a dense network. A sparse stage
    activates its output at its very end (`activate="stage"`, as published) or after every block
    (`activate="block"`, as the text has it); a dense one after every block, as usual.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        width: int,
        depth: int,
        stages: int,
        active: float | Sequence[float] | None,
        activate: Literal["stage", "block"],
        threshold: Threshold,
    ) -> None:
        super().__init__()
        self.units = tuple(width * 2**l for l in range(stages))
        self.activations = activations(self.units, active, threshold)
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
            signal = last(signal, parts, activation, mask, return_fired=True)
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
        width: int,
        stages: int,
        active: float | Sequence[float] | None,
        threshold: Threshold,
    ) -> None:
        super().__init__()
        self.units = (width,) * stages
        self.activations = activations(self.units, active, threshold)
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


def activations(units: Sequence[int], active: float | Sequence[float] | None, threshold: Threshold) -> list[Activation]:
    """What follows each stage: k-WTA and ReLU, or ReLU alone where `active` is None."""
    if active is None:
        return [Activation(None)] * len(units)
    ratios = per_stage("active", active, len(units))
    for ratio, n in zip(ratios, units, strict=True):
        if winners(ratio, n) == 1 and threshold == "k-1":
            raise UsageError(f"active ratio {ratio} of {n} units leaves none under threshold k-1: raise it")
    return [Activation(ratio, threshold) for ratio in ratios]


@dataclass(frozen=True)
class Kind:
    """How a network is made, and its size where none is given.

    `make(image_shape, classes, width=, depth=, stages=, active=, activate=, threshold=)` gives a module that is called
    with images, masks `keep` and `parts` and answers with a Response. Its `units` are those of each stage, its `head`
    is its last layer, a row for each class. Where `active` is None it is dense.
    """

    make: Callable[..., nn.Module]
    width: int
    depth: int
    stages: int


def _resnet(image_shape: tuple[int, int, int], classes: int, **settings: Any) -> nn.Module:
    return ResNet(image_shape[0], classes, **settings)


def _mlp(image_shape: tuple[int, int, int], classes: int, depth: int, activate: str, **settings: Any) -> nn.Module:
    return MLP(math.prod(image_shape), classes, **settings)


NETWORKS = {"resnet18": Kind(_resnet, 64, 2, 4), "small": Kind(_resnet, 16, 1, 2), "mlp": Kind(_mlp, 256, 1, 2)}


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
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    kind = NETWORKS[name]
    with torch.device("meta"):  # nothing is drawn from the global generator
        network = kind.make(
            image_shape, classes, width=width or kind.width, depth=depth or kind.depth, stages=stages or kind.stages,
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
        elif any(True for own in (module.parameters, module.buffers) for _ in own(recurse=False)):
            _reset(module, generator)


def _reset(module: nn.Module, generator: torch.Generator) -> None:
    """The own way of a layer that is not one of ours."""
    reset = getattr(module, "reset_parameters", None)
    if reset is None:
        raise UsageError(f"{type(module).__name__} has weights and no reset_parameters: give it one that sets them")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        reset()
