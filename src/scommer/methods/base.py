"""What every method shares: memories (its state), a loss, and hooks around the step."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from scommer import randomness
from scommer.gpu.side_stream import Event
from scommer.memory import BalancedMemory, EpisodicMemory, LongTermMemory, WorkingMemory
from scommer.methods.training import Training
from scommer.nn import networks


class Batch(NamedTuple):
    """Augmented images [B, C, H, W], labels [B], and the extra fields that episodic memory kept with them."""

    x: Tensor
    y: Tensor
    extra: Mapping[str, Tensor] = {}
    ready: Event | None = None  # on a GPU, the event after which they can be read

    def split(self, *sizes: int) -> "list[Batch]":
        """Return parts of these sizes, without the extra fields and those that are empty."""
        parts = zip(self.x.split(sizes), self.y.split(sizes), strict=True)
        return [Batch(x, y, ready=self.ready) for x, y in parts if len(y)]


class Outcome(NamedTuple):
    """A loss, and working memory's output for the task batch."""

    loss: Tensor
    logits: Tensor
    fired: list[Tensor]
    features: Tensor | None = None  # the input of the network's head, if the method needs it


class View(NamedTuple):
    """A memory as it is evaluated: a network with running statistics for inference."""

    name: str
    memory: WorkingMemory | LongTermMemory
    statistics: Tensor
    mirrored: bool = False  # whether it predicts with the mean logits of an image and its mirror image


@dataclass(frozen=True)
class TaskImages:
    """The images of the task just learned, for another pass over them.

    A long pass calls `check` again and again. It may raise an error, so that a run can be stopped: a method that calls
    it changes its state only afterwards, because `after_task` is then repeated when the run is resumed.
    """

    images: Tensor  # raw, of all tasks
    labels: Tensor
    index: Tensor  # those of this task
    normalise: Callable[[Tensor], Tensor]
    generator: torch.Generator  # for random draws at the end of this task
    check: Callable[[], None] = lambda: None

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all of them once: shuffled and normalised, not augmented."""
        order = torch.randperm(len(self.index), generator=self.generator)
        for part in self.index[order].to(self.images.device).split(size):
            yield Batch(self.normalise(self.images[part]), self.labels[part])


class Part(Protocol):
    """An object that holds tensors which training changes in place, and may hold a `generator` that it draws from."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state by name."""


@dataclass
class Memories:
    """The state of a learner. Everything that training changes is a tensor in here, changed in place.

    `parts` and `state` belong to the method: objects that hold tensors, and tensors by name. All of it is saved,
    resumed, moved between devices, and widened when classes are added. `task_steps` is for a step to read: the number
    of steps of the current task, which the learner sets when a task begins or is resumed.
    """

    working: WorkingMemory
    episodic: EpisodicMemory | None = None
    long_term: dict[str, LongTermMemory] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    state: dict[str, Tensor] = field(default_factory=dict)
    task_steps: Tensor = field(default_factory=lambda: torch.ones(()))

    def _all_parts(self) -> dict[str, Part]:
        episodic: dict[str, Part] = {} if self.episodic is None else {"episodic": self.episodic}
        return {"working": self.working, **episodic, **self.parts, **self.long_term}

    def sync_half(self) -> None:
        """Update the half-precision copies of weights after `theta` was changed elsewhere."""
        for weights in (self.working.weights, *(memory.weights for memory in self.long_term.values())):
            weights.sync_half()

    def tensors(self) -> dict[str, Tensor]:
        """Return the live state by name."""
        own = {f"state/{name}": t for name, t in self.state.items()}
        return {f"{p}/{name}": t for p, part in self._all_parts().items() for name, t in part.tensors().items()} | own

    def generators(self) -> dict[str, torch.Generator]:
        """Return the generators that a step draws from, by name."""
        found = {name: getattr(part, "generator", None) for name, part in self._all_parts().items()}
        return {name: generator for name, generator in found.items() if generator is not None}


@dataclass(frozen=True)
class MemoryFactory:
    """Creates the memories of a learner. `image` is any raw image, for its shape and dtype."""

    image: Tensor
    classes: int
    training: Training
    buffer: int = 200
    seed: int = 0
    device: torch.device | str = "cpu"
    half: torch.dtype | None = None  # dtype of convolutions, if it is not float32
    shared: torch.Generator | None = None  # one generator for all roles; None: one for each role
    network: Mapping[str, Any] = field(default_factory=dict)  # the method's `network_settings`

    def memories(self, method: "Method") -> Memories:
        """Return a method's initial state."""
        made = method.memories(replace(self, network=method.network_settings()))
        return replace(made, task_steps=torch.ones((), device=self.device))

    def working(self) -> WorkingMemory:
        """Return working memory with a new network."""
        t = self.training
        c, h, w = self.image.shape
        network: nn.Module = networks.build(
            t.network, (c, h, w), self.classes, randomness.generator(self.seed, "network"),
            width=t.width, depth=t.depth, stages=t.stages, **self.network,
        )  # fmt: skip
        return WorkingMemory(network.to(self.device), t.momentum, t.weight_decay, self.half)

    def episodic(self, **extra: Tensor) -> EpisodicMemory:
        """Return an empty memory of raw images, labels and extra fields; `extra` holds an example of each field."""
        example = {"x": self.image, "y": torch.zeros((), dtype=torch.int64), **extra}
        kind = BalancedMemory if self.training.balanced else EpisodicMemory
        return kind(self.buffer, example, self.generator("episodic"))

    def long_term(self, working: WorkingMemory, role: str) -> LongTermMemory:
        """Return a memory that averages working memory's weights; `role` names its generator."""
        return LongTermMemory(working, self.generator(role))

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor for `Memories.state`."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def generator(self, role: str) -> torch.Generator:
        """Return the generator for a role, on the device."""
        return self.shared or randomness.generator(self.seed, role, self.device)


class Method:
    """A way to learn a stream. Settings are a frozen dataclass; state lives in `Memories`.

    A method implements `memories` and `loss`; the other hooks do nothing by default. `loss`, `observe`,
    `adjust_gradient` and `after_step` run inside the step: static shapes, no host read, no branch on data.
    """

    label: ClassVar[str] = ""  # in tables and figures; empty: its name
    colour: ClassVar[str] = "#E69F00"  # in figures
    draws: ClassVar[int] = 0  # independent replay batches per step
    passes: ClassVar[int] = 1  # times that working memory processes each of them
    joint: ClassVar[bool] = False  # learns all tasks at once
    descends: ClassVar[bool] = True  # learns by gradient descent; otherwise its hooks set the weights

    # --- before training

    @property
    def inference(self) -> str:
        """The name of the memory used for inference."""
        return "working"

    def network_settings(self) -> dict[str, Any]:
        """Return the arguments of its network besides the size, such as the fraction of active units."""
        return {}

    def outputs(self, classes: int) -> int:
        """Return how many outputs the network has in training, for this many classes."""
        return classes

    def fitted_settings(
        self, training: Training, steps: float, classes: float, image_shape: tuple[int, int, int]
    ) -> dict[str, Any]:
        """Return the settings to fit to a stream without presets.

        `steps` and `classes` are the mean numbers per task. The shape of a row of N features is (1, 1, N).
        """
        return {}

    def plan_warnings(self, training: Training, steps: float) -> list[str]:
        """Return warnings for the user before training with these settings.

        `steps` is the mean number of steps per task if the user has changed a preset's, else infinite.
        """
        return []

    def memories(self, factory: MemoryFactory) -> Memories:
        """Return the initial state."""
        raise NotImplementedError

    def retrieved(self, training: Training, memories: int) -> int:
        """Return how many images the given number of long-term memories process in a step, for `scommer bench`."""
        return training.replay * memories

    # --- a step

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        """Return the loss of one step; `recalled` is empty while there is nothing to recall."""
        raise NotImplementedError

    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        """Update state from the outcome, before the weights change; on a GPU this overlaps with the backward pass."""

    def extra_fields(self, outcome: Outcome) -> Mapping[str, Tensor]:
        """Return what episodic memory keeps of a task batch besides images and labels."""
        return {}

    def adjust_gradient(self, memories: Memories, recalled: tuple[Batch, ...], lr: float) -> None:
        """Change `memories.working.gradient` in place, between gradient and update."""

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        """Update state after the weights have changed."""

    # --- between steps

    def after_epoch(self, memories: Memories, epoch: int) -> None:
        """Update state after an epoch, counted from 0 in each task."""

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        """Update state after a task, before it is evaluated."""

    # --- evaluation and record

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        """Return the memories to evaluate; `calibration` has batches of recalled images and the last task's."""
        return [View("working", memories.working, memories.working.weights.statistics)]

    def arrays(self, memories: Memories) -> dict[str, Tensor]:
        """Return arrays for the record, besides those of every method."""
        return {}


def concatenate(*batches: Batch) -> tuple[Tensor, Tensor]:
    """Return the images and labels of several batches, one after another."""
    return torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches])
