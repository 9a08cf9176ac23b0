"""The paper's ResNet-18 and an MLP, sparse or dense, of any width, depth and number of stages; a linear classifier."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from scommer.errors import UsageError, lookup
from scommer.nn.layers import RELU, Activation, BatchNorm, Conv, LayerOutput, Linear, Parts
from scommer.nn.sparse_coding import Threshold, num_winners, per_stage
from scommer.nn.turned_head import TurnedHead
from scommer.registry import Registry

Keep = Sequence[Tensor | None] | None  # for each stage a dropout mask [B, N] of 0 and 1, or None


class NetworkOutput(NamedTuple):
    """The logits, and which units of each stage fired."""

    logits: Tensor  # [B, C]
    fired: list[Tensor]  # of each stage, [B, N] bool


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut. The caller chooses the activation of their sum."""

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
        before: LayerOutput,
        parts: Parts,
        final_activation: Activation | None,
        keep: Tensor | None = None,
        return_fired: bool = False,
    ) -> LayerOutput:
        y: Tensor = self.norm1(self.conv1(before.x), parts, activation=self.activation).x
        skip: Tensor = before.skip
        if self.shortcut is not None:
            skip = self.shortcut_norm(self.shortcut(skip), parts).x
        y = self.conv2(y)
        added: LayerOutput = self.norm2(
            y, parts, residual=skip, activation=final_activation, keep=keep, return_fired=return_fired
        )
        return added


class ResNet(nn.Module):
    """A residual network for small images: the paper's ResNet-18, with other sizes possible.

    `active` is the fraction of filters that k-WTA keeps active in each stage; None makes a dense network. A sparse
    network activates the residual sum at the end of each stage (`activate="stage"`, as in the published code) or of
    each block (`activate="block"`, as in the paper's text). A dense network activates that of each block.
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

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> NetworkOutput:
        keep = keep or [None] * len(self.units)
        out = self.stem_norm(self.stem(x.to(self.stem.weight.dtype)), parts, activation=RELU)
        fired = []
        for stage, activation, mask in zip(self.stages, self.activations, keep, strict=True):
            *inner, last = stage.children()
            for block in inner:
                out = block(out, parts, activation if self.every_block else None)
            out = last(out, parts, activation, mask, return_fired=True)
            fired.append(out.fired)
        pooled = out.x.mean((2, 3), dtype=self.head.weight.dtype) if out.pooled is None else out.pooled
        return NetworkOutput(self.head(pooled), fired)


class MLP(nn.Module):
    """A multilayer perceptron on flattened images. Each hidden layer is a stage of `width` units."""

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

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> NetworkOutput:
        keep = keep or [None] * len(self.units)
        x, fired = x.flatten(1).to(self.head.weight.dtype), []
        for layer, activation, mask in zip(self.layers, self.activations, keep, strict=True):
            x = activation(layer(x), mask)
            fired.append(x > 0)
        return NetworkOutput(self.head(x), fired)


class LinearClassifier(nn.Module):
    """A head on flattened images, without hidden units."""

    units: tuple[int, ...] = ()

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.head = Linear(inputs, classes)

    def forward(self, x: Tensor, keep: Keep = None, parts: Parts = None) -> NetworkOutput:
        return NetworkOutput(self.head(x.flatten(1).to(self.head.weight.dtype)), [])


def activations(units: Sequence[int], active: float | Sequence[float] | None, threshold: Threshold) -> list[Activation]:
    """Return the activation of each stage: k-WTA and ReLU, or ReLU alone if `active` is None."""
    if active is None:
        return [Activation(None)] * len(units)
    ratios = per_stage("active", active, len(units))
    for ratio, n in zip(ratios, units, strict=True):
        if num_winners(ratio, n) == 1 and threshold == "k-1":
            raise UsageError(f"active = {ratio} leaves no unit of {n} active with threshold k-1: raise active or width")
    return [Activation(ratio, threshold) for ratio in ratios]


@dataclass(frozen=True)
class Architecture:
    """A function that makes a network, and the network's default size.

    `make(image_shape, classes, width=, depth=, stages=, active=, activate=, threshold=)` returns a module, which is
    dense if `active` is None. Its `forward` takes images, dropout masks `keep` and `parts`, and returns a
    `NetworkOutput`. `units` is the number of units of each stage, `head` the last layer, with a row for each class: a
    plain linear layer with bias, if images are to be turned.
    """

    make: Callable[..., nn.Module]
    width: int
    depth: int
    stages: int


def _resnet(image_shape: tuple[int, int, int], classes: int, **settings: Any) -> nn.Module:
    return ResNet(image_shape[0], classes, **settings)


def _mlp(image_shape: tuple[int, int, int], classes: int, depth: int, activate: str, **settings: Any) -> nn.Module:
    return MLP(math.prod(image_shape), classes, **settings)


def _linear(image_shape: tuple[int, int, int], classes: int, active: Any, **settings: Any) -> nn.Module:
    if active is not None:
        raise UsageError("the network linear has no hidden units to be sparse: choose another network, such as mlp")
    return LinearClassifier(math.prod(image_shape), classes)


NETWORKS: Registry[Architecture] = Registry(
    "scommer.networks",
    "an Architecture",
    lambda entry: isinstance(entry, Architecture),
    {
        "resnet18": Architecture(_resnet, width=64, depth=2, stages=4),
        "small": Architecture(_resnet, width=16, depth=1, stages=2),
        "mlp": Architecture(_mlp, width=256, depth=1, stages=2),
        "linear": Architecture(_linear, width=1, depth=1, stages=1),
    },
)


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
    turned: bool = False,
) -> nn.Module:
    """Build a network by name and initialise it with draws from `generator`.

    With `turned`, its head has further outputs in training (`TurnedHead`).
    """
    architecture = lookup("network", name, NETWORKS)
    with torch.device("meta"):  # draws nothing from the global generator
        network = architecture.make(
            image_shape, classes, width=width or architecture.width, depth=depth or architecture.depth,
            stages=stages or architecture.stages, active=active, activate=activate, threshold=threshold,
        )  # fmt: skip
        if turned:
            network.head = TurnedHead(_plain_head(name, network).in_features, classes)
    network.to_empty(device="cpu")
    initialise(network, generator)
    return network


def _plain_head(name: str, network: nn.Module) -> nn.Linear:
    """Return the last layer, of a kind that can be replaced by one with more outputs."""
    head: nn.Module | None = getattr(network, "head", None)
    if isinstance(head, nn.Linear) and type(head) in (nn.Linear, Linear) and len(list(head.parameters())) == 2:
        return head
    raise UsageError(
        f"the last layer of the network {name} is no plain linear one, as turned images need: set turned=0"
    )


def respond(network: nn.Module, x: Tensor, mirrored: bool) -> NetworkOutput:
    """Return a network's output; if `mirrored`, with the mean logits of each image and its mirror image."""
    output: NetworkOutput = network(x)
    if not mirrored:
        return output
    return output._replace(logits=(output.logits + network(x.flip(3)).logits) / 2)


def units_of(network: nn.Module) -> tuple[int, ...]:
    """Return the number of units of each stage."""
    units: tuple[int, ...] = network.units  # type: ignore[assignment]
    return units


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Initialise each layer as PyTorch does by default, with draws from `generator`."""
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
        elif any(True for tensors in (module.parameters, module.buffers) for _ in tensors(recurse=False)):
            _reset(module, generator)


def _reset(module: nn.Module, generator: torch.Generator) -> None:
    """Initialise any other layer with its own `reset_parameters`."""
    reset = getattr(module, "reset_parameters", None)
    if reset is None:
        raise UsageError(
            f"{type(module).__name__} has weights but no reset_parameters: give it one that initialises them"
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))  # no GPU's
        reset()
