"""SCoMMER: sparse coding in a multiple-memory experience replay system (Algorithm 1)."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scommer.errors import within
from scommer.gpu.compiling import compiled
from scommer.memory.long_term import STATISTICS, Statistics, fitted_decay
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome, TaskImages, View, concatenate
from scommer.methods.training import Training
from scommer.nn.sparse_coding import Coding, SparseCode


@dataclass(frozen=True)
class SCoMMER(Coding, Method):
    """Sparse codes, replay, and a long-term memory that teaches working memory.

    Eq. 4: L = CE(f(x; θ_w), y) + γ MSE(f(x_m; θ_w), f(x_m; θ_s)), with x = (x_m, x_t).
    """

    gamma: float = 0.15  # γ, weight of knowledge retrieval
    joint_batch: bool = False  # one mean CE and one batch norm over x; else one each for x_m and x_t
    long_term: bool = True  # off: no long-term memory
    r: float = 0.5  # r, probability of consolidating working memory in a step
    alpha: float = 0.999  # α, decay of long-term memory
    ramp: bool = True  # decay with min(1 - 1/(step + 1), α)
    statistics: Statistics = "replay"  # batch-norm statistics of long-term memory at inference
    answer: Literal["long_term", "working"] = "long_term"  # the memory used for inference

    label: ClassVar[str] = "SCoMMER"
    colour: ClassVar[str] = "#D55E00"
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        within(self, 0, inf, "gamma", "pi_h", "pi_s", "warmup")
        within(self, 0, 1, "r", "alpha", "active")

    @property
    def inference(self) -> str:
        return self.answer if self.long_term else "working"

    def fitted_settings(self, training: Training, steps: float) -> dict[str, Any]:
        return {"warmup": int(0.6 * training.epochs), "alpha": fitted_decay(steps)}  # as 30 of the paper's 50 epochs

    def plan_warnings(self, training: Training) -> list[str]:
        if training.epochs > self.warmup + 1 or self.dropout == "none":
            return []
        advice = "give more epochs" if training.epochs == 1 else f"give more epochs or a warmup below {self.warmup}"
        return [f"semantic dropout starts only after a task, whose epochs are all within its warm-up: {advice}"]

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        slow = {"long_term": factory.long_term(working, "coin")} if self.long_term else {}
        code = SparseCode(self, working.units, factory.classes, factory.generator("code"))
        return Memories(working, factory.episodic(), slow, parts={"code": code})

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        x, y = concatenate(*recalled, task)
        n = len(y) - len(task.y)  # x_m comes first
        apart = n > 0 and not self.joint_batch
        keep = _code(memories).dropout_masks(y, exempt=0 if self.replay_dropout else n)
        z, fired = memories.working(x, keep, parts=(n, len(task.y)) if apart else None)
        slow = memories.long_term.get("long_term")
        z_s = slow.retrieve(recalled[0].x, recalled[0].ready) if slow and n else None
        return Outcome(_eq_4(z, y, z_s, n, apart, self.gamma), z[n:], [f[n:] for f in fired])

    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        _code(memories).count(outcome.fired, task.y)

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        for memory in memories.long_term.values():
            memory.consolidate(memories.working, self.r, self.alpha, self.ramp)

    def after_epoch(self, memories: Memories, epoch: int) -> None:
        if epoch > self.warmup:
            _code(memories).refresh_semantic()

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        _code(memories).refresh_heterogeneous()
        if self.refresh_at_task_end:
            _code(memories).refresh_semantic()

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        views = [View("working", memories.working, memories.working.weights.statistics)]
        for name, memory in memories.long_term.items():
            for choice in sorted(STATISTICS, key=lambda c: c != self.statistics):  # the chosen one first
                label = name if choice == self.statistics else f"{name}/{choice}"
                views.append(View(label, memory, memory.statistics(choice, memories.working, calibration)))
        return views

    def arrays(self, memories: Memories) -> dict[str, Tensor]:
        code = _code(memories)
        counts = {f"a_g/{l + 1}": a_g for l, a_g in enumerate(code.a_g)}
        return {name.replace(".", "/"): t for name, t in code.tensors().items()} | counts


def _code(memories: Memories) -> SparseCode:
    code = memories.parts["code"]
    assert isinstance(code, SparseCode)
    return code


@compiled
def _eq_4(z: Tensor, y: Tensor, z_s: Tensor | None, n: int, apart: bool, gamma: float) -> Tensor:
    z_m, z_t = z.split((n, len(z) - n))
    loss = cross_entropy(z_m, y[:n]) + cross_entropy(z_t, y[n:]) if apart else cross_entropy(z, y)
    return loss if z_s is None else loss + gamma * mse_loss(z_m, z_s)
