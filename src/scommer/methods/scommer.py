"""SCoMMER: sparse coding in a multiple-memory experience replay system (Algorithm 1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from scommer.errors import within
from scommer.gpu.compiling import compiled
from scommer.gpu.side_stream import record_event
from scommer.memory.long_term import STATISTICS, Statistics, decay_warnings, fitted_decay
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome, Part, TaskImages, View, concatenate
from scommer.methods.plus import class_shares, distance, strength
from scommer.methods.training import Training
from scommer.methods.turning import Turning, over_turns
from scommer.nn.sparse_coding import Coding, SparseCode
from scommer.nn.turned_head import TURNS

LONG = 40  # learning rate times steps of a task, from which images of your own are turned; with 30 it gained nothing
FEW = 5  # classes of a task up to which images of your own are turned; with ten it cost points
TURNABLE = ("resnet18", "small")  # networks that it was measured with


@dataclass(frozen=True)
class SCoMMER(Coding, Method):
    """Sparse codes, replay, and a long-term memory that teaches working memory.

    Eq. 4: L = CE(f(x; θ_w), y) + γ MSE(f(x_m; θ_w), f(x_m; θ_s)), with x = (x_m, x_t).

    The variant `plus` adds (docs/plus.md): CE(f(x; θ_w) + τ log π, y) with π_c the share of class c in the
    training images; λ MSE(f(x_t; θ_w), f(x_t; θ_s)) over the classes of earlier tasks only; a decay α that averages
    over part of a task, or of all steps so far if that is less: r (1 - α) = 1 / min(h · steps of the task, f · steps);
    and turned images, as classes of their own.
    """

    gamma: float = 0.15  # γ, weight of knowledge retrieval: the distance from the logits of long-term memory
    joint_batch: bool = False  # one loss and one batch norm for recalled and task images, instead of one each
    long_term: bool = True  # whether there is a long-term memory
    r: float = 0.5  # r, probability of updating long-term memory in a step
    alpha: float = 0.999  # α, decay of long-term memory
    ramp: bool = True  # let the decay grow from 0.5 to α over the first steps
    horizon: float = 0.0  # h, fraction of a task that long-term memory averages over, which sets α; 0: α as given
    recent: float = 0.0  # f, limit of a horizon, as a fraction of all steps so far; 0: no limit
    statistics: Statistics = "replay"  # batch-norm statistics of long-term memory at inference
    answer: Literal["long_term", "working"] = "long_term"  # memory used for inference
    balance: float = 0.0  # τ, correction for each class's share of the training images; in short tasks at most 1
    teach: float = 0.0  # λ, weight of the teacher's logits for earlier classes on task images
    teacher: Literal["long_term", "snapshot"] = "long_term"  # long-term memory now, or when the last task ended
    turned: float = 0.0  # ρ, share of images turned by 90°, 180° or 270°; each turn of a class is a class of its own

    label: ClassVar[str] = "SCoMMER"
    colour: ClassVar[str] = "#D55E00"
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        within(self, 0, inf, "gamma", "pi_h", "pi_s", "warmup", "horizon", "recent", "balance", "teach")
        within(self, 0, 1, "r", "alpha", "active")
        within(self, 0, 0.75, "turned")  # with more, upright images would be rarer than those of each turn

    @property
    def inference(self) -> str:
        return self.answer if self.long_term else "working"

    def network_settings(self) -> dict[str, Any]:
        return {**super().network_settings(), "turned": self.turned > 0}

    def outputs(self, classes: int) -> int:
        return classes * TURNS if self.turned else classes

    def fitted_settings(
        self, training: Training, steps: float, classes: float, image_shape: tuple[int, int, int]
    ) -> dict[str, Any]:
        _, height, width = image_shape
        long = training.lr * steps >= LONG
        worth = height == width > 1 and long and classes <= FEW and training.network in TURNABLE
        return {
            "warmup": int(0.6 * training.epochs),  # as 30 of the paper's 50 epochs
            "alpha": fitted_decay(steps),
            "turned": self.turned if worth else 0.0,
        }

    def plan_warnings(self, training: Training, steps: float) -> list[str]:
        found = []
        if training.epochs <= self.warmup + 1 and self.dropout != "none":
            advice = "" if training.epochs == 1 else f", or warmup={training.epochs - 2}"
            found.append(
                "semantic dropout starts only after a task, whose epochs are all within its warm-up: "
                f"give more epochs{advice}"
            )
        if self.recent and not self.horizon:
            found.append("recent does nothing without a horizon: give one, such as horizon=0.6")
        if self.long_term and not self.horizon:
            found += decay_warnings(self.r, self.alpha, steps)
        return found

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        slow = {"long_term": factory.long_term(working, "coin")} if self.long_term else {}
        if slow and self.teach and self.teacher == "snapshot":
            slow["snapshot"] = factory.long_term(working, "coin")
        code = SparseCode(self, working.units, factory.classes, factory.generator("code"))
        counts = ("current", "earlier") if self.balance or self.teach else ()  # of labels, of this task and before
        state = {name: factory.zeros(factory.classes) for name in counts}
        parts: dict[str, Part] = {"code": code}
        if self.turned:
            parts["turning"] = Turning(self.turned, factory.image, factory.classes, factory.generator("turning"))
        return Memories(working, factory.episodic(), slow, parts=parts, state=state)

    def retrieved(self, training: Training, memories: int) -> int:
        return training.replay * self.long_term + training.batch * (self.long_term and self.teach > 0)

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        x, y = concatenate(*recalled, task)
        n = len(y) - len(task.y)  # x_m comes first
        apart = n > 0 and not self.joint_batch
        turning, target = memories.parts.get("turning"), y
        if isinstance(turning, Turning):
            x, target = turning(x, y)
        both = Batch(x, y, ready=record_event(x.device) if self.teach or turning else None)
        keep = _code(memories).dropout_masks(y, exempt=0 if self.replay_dropout else n)
        z, fired = memories.working(x, keep, parts=(n, len(task.y)) if apart else None)
        z_s, taught = self._retrieve(memories, both, both.split(n, len(task.y)) if turning else [*recalled, task])
        loss = _eq_4(z, target, z_s, n, apart, self.gamma, self._log_shares(memories, task, n))
        if taught is not None:
            earlier, current = (self._over_outputs(memories.state[name]) for name in ("earlier", "current"))
            loss = loss + _teach(z[n:], taught, earlier, current, self.teach)
        return Outcome(loss, z[n:], [f[n:] for f in fired])

    def _over_outputs(self, values: Tensor) -> Tensor:
        """Return a value of each class for each output of the network in training."""
        return over_turns(values) if self.turned else values

    def _retrieve(self, memories: Memories, both: Batch, parts: Sequence[Batch]) -> tuple[Tensor | None, Tensor | None]:
        """Return long-term memory's answers to recalled images, and the teacher's to the task's, if they are needed.

        `parts` are the recalled images, if there are any, and the task's; `both` has all of them.
        """
        slow = memories.long_term.get("long_term")
        if slow is None or len(parts) == 1:
            return None, None
        recalled, task = parts
        if self.teach and self.teacher == "long_term":
            sizes = (len(recalled.y), len(task.y))
            z_s, taught = slow.retrieve(both.x, both.ready, sizes).split(sizes)
            return z_s, taught
        z_s = slow.retrieve(recalled.x, recalled.ready)
        return z_s, memories.long_term["snapshot"].retrieve(task.x, task.ready) if self.teach else None

    def _log_shares(self, memories: Memories, task: Batch, recalled: int) -> Tensor | None:
        """Return τ log π, or None without the correction."""
        episodic = memories.episodic
        if not self.balance or episodic is None:
            return None
        remembered = episodic.fields["y"][: episodic.capacity]
        current = memories.state["current"]
        held, steps = episodic.seen, memories.task_steps
        shares = _log_shares(remembered, held, current, task.y, recalled > 0, self.balance, steps)
        return self._over_outputs(shares)

    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        _code(memories).count(outcome.fired, task.y)
        if "current" in memories.state:
            memories.state["current"].index_add_(0, task.y, torch.ones_like(task.y, dtype=torch.float32))

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        if self.long_term:
            slow = memories.long_term["long_term"]
            alpha: float | Tensor = self.alpha
            if self.horizon:
                alpha = _decay(slow.step, memories.task_steps, self.r, self.horizon, self.recent)
            slow.consolidate(memories.working, self.r, alpha, self.ramp)

    def after_epoch(self, memories: Memories, epoch: int) -> None:
        if epoch > self.warmup:
            _code(memories).refresh_semantic()

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        _code(memories).refresh_heterogeneous()
        if self.refresh_at_task_end:
            _code(memories).refresh_semantic()
        if "current" in memories.state:
            memories.state["earlier"].add_(memories.state["current"])
            memories.state["current"].zero_()
        if "snapshot" in memories.long_term:
            memories.long_term["snapshot"].copy_from(memories.long_term["long_term"])

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        views = [View("working", memories.working, memories.working.weights.statistics)]
        if memory := memories.long_term.get("long_term"):
            for choice in sorted(STATISTICS, key=lambda c: c != self.statistics):  # the chosen one first
                label = "long_term" if choice == self.statistics else f"long_term/{choice}"
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
def _eq_4(z: Tensor, y: Tensor, z_s: Tensor | None, n: int, apart: bool, gamma: float, shift: Tensor | None) -> Tensor:
    logits = z if shift is None else z + shift
    loss = cross_entropy(logits[:n], y[:n]) + cross_entropy(logits[n:], y[n:]) if apart else cross_entropy(logits, y)
    return loss if z_s is None else loss + gamma * mse_loss(z[:n], z_s)


@compiled
def _log_shares(
    remembered: Tensor, held: Tensor, current: Tensor, y: Tensor, replay: bool, balance: float, task_steps: Tensor
) -> Tensor:
    return strength(balance, task_steps) * class_shares(remembered, held, current, y, replay).log()


@compiled
def _teach(z: Tensor, taught: Tensor, earlier: Tensor, current: Tensor, weight: float) -> Tensor:
    return weight * distance(z, taught, (earlier > 0) & (current == 0))


@compiled
def _decay(step: Tensor, task_steps: Tensor, r: float, horizon: float, recent: float) -> Tensor:
    """Return the α that averages over part of a task: r (1 - α) = 1 / min(h · steps of the task, f · steps so far)."""
    window = horizon * task_steps
    if recent:
        window = torch.minimum(window, recent * (step + 1))
    return (1 - 1 / (r * window)).clamp(min=0)
