"""What every method shares: a mind (the state), a loss, and hooks around the step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from scommer import networks, randomness
from scommer.beside import Event
from scommer.memory import EpisodicMemory, LongTermMemory, WorkingMemory
from scommer.sparse_coding import SparseCode
from scommer.training import Training


class Batch(NamedTuple):
    """Augmented images [B, C, H, W], labels [B], and what else a memory kept with them."""

    x: Tensor
    y: Tensor
    kept: Mapping[str, Tensor] = {}
    ready: Event | None = None  # on a GPU, when they were there


class Outcome(NamedTuple):
    """A loss, and working memory's answer to the task batch."""

    loss: Tensor
    logits: Tensor
    fired: list[Tensor]


class View(NamedTuple):
    """A memory as it is evaluated: a network with running statistics for inference."""

    name: str
    memory: WorkingMemory | LongTermMemory
    statistics: Tensor


@dataclass
class Mind:
    """The memories of a learner. Everything that training changes is a tensor in here, changed in place."""

    working: WorkingMemory
    episodic: EpisodicMemory | None = None
    long_term: dict[str, LongTermMemory] = field(default_factory=dict)
    code: SparseCode | None = None

    def _parts(self) -> dict[str, Any]:
        parts = {"working": self.working, "episodic": self.episodic, "code": self.code, **self.long_term}
        return {name: part for name, part in parts.items() if part is not None}

    def follow(self) -> None:
        """Brings the copies in half precision up to date, after the state was changed from outside."""
        for weights in (self.working.weights, *(memory.weights for memory in self.long_term.values())):
            weights.follow()

    def tensors(self) -> dict[str, Tensor]:
        """The live state, by name."""
        return {f"{p}/{name}": t for p, part in self._parts().items() for name, t in part.tensors().items()}

    def generators(self) -> dict[str, torch.Generator]:
        """The generators that a step draws from."""
        return {p: part.generator for p, part in self._parts().items() if hasattr(part, "generator")}


@dataclass(frozen=True)
class Workshop:
    """What minds are made from: one raw image, the number of classes, sizes, seed and device."""

    image: Tensor
    classes: int
    training: Training
    buffer: int = 200
    seed: int = 0
    device: torch.device | str = "cpu"
    half: torch.dtype | None = None  # the precision of convolutions, where it is not the full one
    shared: torch.Generator | None = None  # that all roles draw from, where they do not have their own
    network: Mapping[str, Any] = field(default_factory=dict)  # what the method's network must know beside its size

    def mind(self, method: "Method") -> Mind:
        """A method's state at the start."""
        return method.mind(replace(self, network=method.network_settings()))

    def working(self) -> WorkingMemory:
        """A fresh network of the wanted size."""
        t = self.training
        c, h, w = self.image.shape
        network: nn.Module = networks.build(
            t.network, (c, h, w), self.classes, randomness.generator(self.seed, "network"),
            width=t.width, depth=t.depth, stages=t.stages, **self.network,
        )  # fmt: skip
        return WorkingMemory(network.to(self.device), t.momentum, t.weight_decay, self.half)

    def episodic(self, **extra: Tensor) -> EpisodicMemory:
        """A memory of raw images and labels, and what else a method keeps."""
        example = {"x": self.image, "y": torch.zeros((), dtype=torch.int64), **extra}
        return EpisodicMemory(self.buffer, example, self.generator("episodic"))

    def generator(self, role: str) -> torch.Generator:
        """A generator of this experiment's seed, on its device."""
        return self.shared or randomness.generator(self.seed, role, self.device)


class Method:
    """A way to learn a stream. Settings are a frozen dataclass; state lives in the mind.

    A method gives `mind` and `loss`; the hooks do nothing unless it says otherwise. `loss`,
    `observe` and `after_step` run inside the step: static shapes, no host read, no branch on data.
    """

    draws: ClassVar[int] = 0  # independent replay batches a step
    passes: ClassVar[int] = 1  # times that working memory sees each of them
    joint: ClassVar[bool] = False  # learns all tasks at once
    averages: ClassVar[bool] = False  # has memories that average weights, with a decay `alpha`

    @property
    def inference(self) -> str:
        """The memory that answers."""
        return "working"

    def network_settings(self) -> dict[str, Any]:
        """What its network must know beside its size, to be sparse: those that answer later are built so too."""
        return {}

    def mind(self, make: Workshop) -> Mind:
        """The state at the start."""
        raise NotImplementedError

    def loss(self, mind: Mind, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        """The loss of one step; `recalled` is empty while there is nothing to recall."""
        raise NotImplementedError

    def keepsake(self, outcome: Outcome) -> Mapping[str, Tensor]:
        """What episodic memory keeps beside image and label."""
        return {}

    def observe(self, mind: Mind, task: Batch, outcome: Outcome) -> None:
        """What a step notes of its answer; the weights change meanwhile."""

    def after_step(self, mind: Mind, task: Batch, outcome: Outcome) -> None: ...

    def after_epoch(self, mind: Mind, epoch: int) -> None: ...

    def after_task(self, mind: Mind) -> None: ...

    def views(self, mind: Mind, calibration: Iterable[Tensor]) -> list[View]:
        """The memories to evaluate; `calibration` holds batches half recalled, half of the task just learned."""
        return [View("working", mind.working, mind.working.weights.statistics)]


def interleave(*batches: Batch) -> tuple[Tensor, Tensor]:
    """Images and labels of several batches, one after the other."""
    return torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches])
