"""Long-term memory: the stochastic moving average of working memory's weights (Eq. 3)."""

import copy
from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

from scommer.gpu.compiling import compiled
from scommer.gpu.side_stream import Event, SideStream
from scommer.memory.working import WorkingMemory
from scommer.nn.layers import BatchNorm, Parts
from scommer.nn.weights import Weights

Statistics = Literal["replay", "working", "recalibrated"]
STATISTICS: tuple[Statistics, ...] = get_args(Statistics)


def fitted_decay(steps: float) -> float:
    """Return a decay α that averages over a fraction of a task with this many steps."""
    return round(min(0.999, max(0.9, 1 - 5 / steps)), 4)


def decay_warnings(r: float, alpha: float, steps: float) -> list[str]:
    """Return a warning if a memory averages over more steps than a task has: it would hardly learn the task."""
    window = 1 / (r * (1 - alpha)) if r * (1 - alpha) > 0 else inf
    if not steps < window:
        return []
    many = f"about {window:,.0f}" if window < inf else "all"
    smaller = f", or alpha={1 - 2 / (r * steps):.3g}" if r * steps > 2 else ""  # averages over half of a task
    return [
        f"long-term memory averages over {many} steps (alpha = {alpha:g}), but a task has {steps:,.0f}: "
        f"give more epochs{smaller}"
    ]


class LongTermMemory:
    """A network θ_s that starts as a copy of working memory, θ_s = θ_w, and averages its weights.

    Only parameters are averaged. Its own passes in training mode over replayed examples update the running statistics
    of batch norm; `statistics` offers other choices for inference.
    """

    def __init__(self, working: WorkingMemory, generator: torch.Generator) -> None:
        shared = {id(working.sink): None}  # the copy gets None: it needs no gradients
        self.network = copy.deepcopy(working.network, shared).requires_grad_(False).train()
        self.weights = Weights(self.network, working.weights.half.dtype if working.weights.half is not None else None)
        self.weights.theta.copy_(working.weights.theta)
        self.units, self.generator = working.units, generator
        self.side = SideStream(self.weights.theta.device)
        self.step = torch.zeros((), dtype=torch.float32, device=self.weights.theta.device)

    @torch.no_grad()
    def retrieve(self, x: Tensor, after: Event | None = None, parts: Parts = None) -> Tensor:
        """Return the structural knowledge of replayed examples, f(x_m; θ_s).

        A GPU runs it on a side stream once the event `after` is reached, so that it overlaps with later work.
        """
        with self.side.run(x, after=after):
            logits: Tensor = self.network(x, None, parts).logits
        self.side.join(logits)
        return logits

    @torch.no_grad()
    def respond(self, x: Tensor) -> Tensor:
        """Return the logits in evaluation mode; the running statistics do not change."""
        self.network.eval()
        logits = self.retrieve(x)
        self.network.train()
        return logits

    @torch.no_grad()
    def copy_from(self, other: "WorkingMemory | LongTermMemory") -> None:
        """Copy the weights and running statistics of another memory."""
        self.weights.theta.copy_(other.weights.theta)
        self.weights.sync_half()
        self.weights.statistics.copy_(other.weights.statistics)

    @torch.no_grad()
    def consolidate(self, working: WorkingMemory, r: float, alpha: float | Tensor, ramp: bool) -> None:
        """θ_s ← α θ_s + (1 - α) θ_w if r > a ~ U(0, 1) (Eq. 3).

        With `ramp`, the decay is min(1 - 1/(step + 1), α), with steps counted from 1. For r = 1 this is the plain
        average of all weights so far until the decay reaches α; for a smaller r, early weights count more.
        """
        self.step.add_(1)
        a = torch.rand((), generator=self.generator, device=self.step.device)
        self.weights.lerp(working.weights.theta, _update_weight(self.step, a, r, alpha, ramp))

    def statistics(self, choice: Statistics, working: WorkingMemory, batches: Iterable[Tensor]) -> Tensor:
        """Return running statistics for inference: its own, working memory's, or recalibrated on `batches`."""
        if choice == "replay":
            return self.weights.statistics.clone()
        if choice == "working":
            return working.weights.statistics.clone()
        return self._recalibrated(batches)

    @torch.no_grad()
    def _recalibrated(self, batches: Iterable[Tensor]) -> Tensor:
        """Return the mean over batches of their statistics under the current weights."""
        norms = [m for m in self.network.modules() if isinstance(m, BatchNorm)]
        own = [m.momentum for m in norms]
        try:
            with self.weights.using_statistics(self.weights.statistics.clone()):
                for i, x in enumerate(batches):
                    for m in norms:
                        m.momentum = 1 / (i + 1)  # makes the running statistics the mean of all batches so far
                    self.network(x)
                return self.weights.statistics.clone()
        finally:
            for m, momentum in zip(norms, own, strict=True):
                m.momentum = momentum

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state by name."""
        return {"theta": self.weights.theta, "statistics": self.weights.statistics, "step": self.step}


@compiled
def _update_weight(step: Tensor, a: Tensor, r: float, alpha: float | Tensor, ramp: bool) -> Tensor:
    """Return the weight of θ_w in an update: 1 - α if r > a, else 0."""
    decay = (1 - 1 / (step + 1)).clamp(max=alpha) if ramp else torch.zeros_like(step) + alpha
    return torch.where(a < r, 1 - decay, 0.0)
