"""Batches, memories off their start, and networks, losses and statistics computed a second time."""

import copy
import tomllib
from collections.abc import Sequence
from functools import partial
from importlib.resources import files

import torch
from torch import Tensor, nn

from scommer.methods import Batch, Memories, MemoryFactory, Method, Outcome, TaskImages
from scommer.methods.training import Training

PRESETS = tomllib.loads((files("scommer.runs") / "presets.toml").read_text(encoding="utf-8"))
CLASSES, UNITS = 5, (8, 16)
CODING = {"active": (0.9, 0.8), "gamma": 0.3, "pi_h": 2.0}
START = [1.0] * 14 + [0.0] * 2  # what may be retained first: int(1.1 · 0.8 · 16) = 14 units of the last stage
FACTORY = MemoryFactory(torch.zeros(2, 6, 6, dtype=torch.uint8), CLASSES, Training(network="small", width=8), buffer=20)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(n: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Batch:
    x = scale * torch.randn(n, 2, 6, 6, generator=seeded(seed)) + shift
    y = torch.randint(CLASSES, (n,), generator=seeded(seed + 1))
    return Batch(x, y, {"logits": torch.randn(n, CLASSES, generator=seeded(seed + 2))})


TASK, FIRST, SECOND = batch(7, 1), batch(5, 11, 2.0, 1.0), batch(4, 21, 0.5, -1.0)


def masks(rows: Sequence[Sequence[float]]) -> list[Tensor | None]:
    """Of the last of two stages."""
    return [None, torch.tensor(rows)]


def shake(vector: Tensor, seed: int, size: float = 0.1) -> None:
    vector.add_(size * torch.randn(vector.shape, generator=seeded(seed)))


def memories_of(method: Method) -> Memories:
    """Memories that have drifted apart."""
    memories = FACTORY.memories(method)
    shake(memories.working.weights.theta, 1)
    for i, memory in enumerate(memories.long_term.values()):
        shake(memory.weights.theta, 5 + i)
    return memories


def task_images() -> TaskImages:
    """Made-up images of a task that has ended."""
    images, labels = torch.randint(0, 256, (9, 2, 6, 6), generator=seeded(31)), torch.arange(9) % CLASSES
    return TaskImages(images, labels, torch.arange(1, 9), lambda x: x / 255, seeded(32))


def ce(z: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy, written out."""
    p = torch.exp(z) / torch.exp(z).sum(1, keepdim=True)
    return -torch.stack([p[i, c].log() for i, c in enumerate(y.tolist())]).sum() / len(y)


def mse(a: Tensor, b: Tensor) -> Tensor:
    """Squared differences, averaged over samples and classes."""
    return ((a - b) ** 2).sum() / a.numel()


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def statistics(network: nn.Module) -> Tensor:
    return torch.cat([b.flatten() for b in network.buffers()])


class Twin:
    """Copies of the networks of memories, in train mode, to compute on beside it."""

    def __init__(self, memories: Memories) -> None:
        self.network = copy.deepcopy(memories.working.network).train()
        self.slow = {name: copy.deepcopy(m.network).train() for name, m in memories.long_term.items()}

    def check(self, memories: Memories, outcome: Outcome, loss: Tensor) -> None:
        """Loss, gradient and running statistics agree."""
        same(outcome.loss, loss)
        gradient = torch.autograd.grad(loss, list(self.network.parameters()))
        memories.working.gradient.zero_()
        outcome.loss.backward()
        for (name, p), g in zip(memories.working.network.named_parameters(), gradient, strict=True):
            torch.testing.assert_close(p.grad, g, rtol=1e-3, atol=1e-5, msg=partial("{}: {}".format, name))
        same(statistics(memories.working.network), statistics(self.network))
        for name, network in self.slow.items():
            same(statistics(memories.long_term[name].network), statistics(network))
