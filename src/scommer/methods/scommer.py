"""SCoMMER: sparse coding in a multiple-memory experience replay system (Algorithm 1)."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scommer.compiling import compiled
from scommer.errors import within
from scommer.memory import LongTermMemory
from scommer.memory.long_term import STATISTICS, Statistics
from scommer.methods.base import Batch, Method, Mind, Outcome, View, Workshop, interleave
from scommer.sparse_coding import Coding, SparseCode


@dataclass(frozen=True)
class SCoMMER(Coding, Method):
    """Sparse codes, replay, and a long-term memory that teaches working memory.

    Eq. 4: L = CE(f(x; θ_w), y) + γ MSE(f(x_m; θ_w), f(x_m; θ_s)), with x = (x_m, x_t).
    """

    gamma: float = 0.15  # γ, weight of knowledge retrieval
    joint_batch: bool = False  # one mean CE and one batch-norm over x; else one each for x_m and x_t
    long_term: bool = True  # off: no long-term memory
    r: float = 0.5  # r, how often working memory is consolidated
    alpha: float = 0.999  # α, decay of long-term memory
    ramp: bool = True  # decay with min(1 - 1/(step + 1), α)
    statistics: Statistics = "replay"  # batch-norm statistics of long-term memory at inference
    answer: Literal["long_term", "working"] = "long_term"  # the memory of inference

    draws: ClassVar[int] = 1
    averages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        within(self, 0, inf, "gamma", "pi_h", "pi_s", "warmup")
        within(self, 0, 1, "r", "alpha", "active")

    @property
    def inference(self) -> str:
        return self.answer if self.long_term else "working"

    def mind(self, make: Workshop) -> Mind:
        working = make.working()
        slow = {"long_term": LongTermMemory(working, make.generator("coin"))} if self.long_term else {}
        code = SparseCode(self, working.units, make.classes, make.generator("code"))
        return Mind(working, make.episodic(), slow, code)

    def loss(self, mind: Mind, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        x, y = interleave(*recalled, task)
        n = len(y) - len(task.y)  # x_m comes first
        apart = n > 0 and not self.joint_batch
        keep = mind.code.keep(y, spared=0 if self.replay_dropout else n) if mind.code else None
        z, fired = mind.working(x, keep, parts=(n, len(task.y)) if apart else None)
        z_s = mind.long_term["long_term"].retrieve(recalled[0].x, recalled[0].ready) if n and self.long_term else None
        loss = _eq_4(z, y, z_s, n, apart, self.gamma)
        return Outcome(loss, z[n:], [f[n:] for f in fired])

    def observe(self, mind: Mind, task: Batch, outcome: Outcome) -> None:
        if mind.code:
            mind.code.count(outcome.fired, task.y)

    def after_step(self, mind: Mind, task: Batch, outcome: Outcome) -> None:
        for memory in mind.long_term.values():
            memory.consolidate(mind.working, self.r, self.alpha, self.ramp)

    def after_epoch(self, mind: Mind, epoch: int) -> None:
        if mind.code and epoch > self.warmup:
            mind.code.refresh_semantic()

    def after_task(self, mind: Mind) -> None:
        if mind.code:
            mind.code.refresh_heterogeneous()
            if self.refresh_at_task_end:
                mind.code.refresh_semantic()

    def views(self, mind: Mind, calibration: Iterable[Tensor]) -> list[View]:
        views = [View("working", mind.working, mind.working.weights.statistics)]
        for name, memory in mind.long_term.items():  # the chosen statistics first, the others beside it
            for choice in sorted(STATISTICS, key=lambda c: c != self.statistics):
                label = name if choice == self.statistics else f"{name}/{choice}"
                views.append(View(label, memory, memory.statistics(choice, mind.working, calibration)))
        return views


@compiled
def _eq_4(z: Tensor, y: Tensor, z_s: Tensor | None, n: int, apart: bool, gamma: float) -> Tensor:
    z_m, z_t = z.split((n, len(z) - n))
    loss = cross_entropy(z_m, y[:n]) + cross_entropy(z_t, y[n:]) if apart else cross_entropy(z, y)
    return loss if z_s is None else loss + gamma * mse_loss(z_m, z_s)
