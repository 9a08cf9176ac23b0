"""Sparse coding: k-winner-take-all (Algorithm 2) and semantic dropout (Eq. 1, Eq. 2, Algorithm 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from scommer.errors import UsageError
from scommer.gpu.compiling import compiled
from scommer.gpu.side_stream import SideStream

Threshold = Literal["k", "k-1"]
Draw = Literal["batch", "sample"]


def k_wta(x: Tensor, ratio: float, threshold: Threshold = "k") -> Tensor:
    """Keeps the ratio·N highest-scoring units of each sample and silences the others (Algorithm 2).

    `x` is [B, N, H, W], where a unit is a filter and its score is Σ|x| over its map, or [B, N], where a
    unit is a value and its score |x|. Units win whose score is strictly above the (k+1)-th highest, with
    k = int(ratio·N): exactly k without ties; units that tie at the threshold all lose. With
    `threshold="k-1"` the text's own threshold is used, the k-th highest score, which lets k - 1 win.
    The gradient flows through winners only. The ReLU that ends Algorithm 2 is the caller's.
    """
    threshold_rank = rank(ratio, x.shape[1], threshold)
    if not threshold_rank:
        return x
    precise = torch.promote_types(x.dtype, torch.float32)  # half precision would make ties
    score = x.abs().flatten(2).sum(2, dtype=precise) if x.dim() > 2 else x.abs()  # [B, N]
    limit = score.topk(threshold_rank, dim=1).values[:, -1:]
    won = (score > limit).to(x.dtype)
    return x * won.reshape(won.shape + (1,) * (x.dim() - 2))


def rank(ratio: float, units: int, threshold: Threshold = "k") -> int:
    """The rank of the score that a winner must beat; 0 where all units win."""
    k = winners(ratio, units)
    if threshold == "k-1":
        return k
    return k + 1 if k < units else 0


def winners(ratio: float, units: int) -> int:
    """How many units win: k = int(ratio·N), with a clear error where that leaves nothing."""
    if not 0 < ratio <= 1:
        raise UsageError(f"active ratio {ratio} is impossible: give a number above 0 and at most 1")
    k = int(ratio * units + 1e-9)  # 0.7 * 10 is 7, whatever its floating-point digits
    if k < 1:
        raise UsageError(f"active ratio {ratio} leaves none of {units} units active: raise it or the width")
    return k


def heterogeneous_probability(a_g: Tensor, pi_h: float) -> Tensor:
    """P_h, how likely a unit is retained for new classes: the busier so far, the less (Eq. 1)."""
    return torch.exp(-pi_h * _share(a_g))


def semantic_probability(a_s: Tensor, pi_s: float) -> Tensor:
    """P_s, how likely a unit is retained for its class: the busier for it so far, the more (Eq. 2)."""
    return 1 - torch.exp(-pi_s * _share(a_s))


def _share(counts: Tensor) -> Tensor:
    """Counts over their row's maximum; a row that counted nothing stays 0."""
    return counts.float() / counts.amax(-1, keepdim=True).clamp(min=1)


def sample_units(weight: Tensor, n: int, rows: int, generator: torch.Generator) -> Tensor:
    """A [rows, N] mask of n units each, drawn by weight without replacement.

    Units race with exponential clocks of rate `weight`; the first n home are a weighted sample without
    replacement, drawn one after the other. A unit of weight 0 never comes home before the others.
    """
    clock = torch.empty(rows, len(weight), device=weight.device).exponential_(generator=generator)
    first = _finish(clock, weight).topk(n, dim=1, largest=False, sorted=False).indices
    return torch.zeros_like(clock).scatter_(1, first, 1.0)


@compiled
def _finish(clock: Tensor, weight: Tensor) -> Tensor:
    """When each unit comes home, clock / weight, in logarithms."""
    return clock.log() - weight.log()


@dataclass(frozen=True)
class Coding:
    """The settings of sparse coding; the defaults are those of the published implementation."""

    sparse: bool = True  # off: dense activations
    active: float | tuple[float, ...] = (0.9, 0.9, 0.9, 0.8)  # %k, share of active units of each stage
    activate: Literal["stage", "block"] = "stage"  # residual sums are activated once a stage, or each
    threshold: Threshold = "k"  # how many win
    dropout: Literal["last", "all", "none"] = "last"  # the stages whose output is dropped
    pi_h: float | tuple[float, ...] = (0.5, 0.5, 5.0, 5.0)  # π_h, strength of heterogeneous dropout
    pi_s: float | tuple[float, ...] = 2.0  # π_s, strength of semantic dropout
    warmup: int = 30  # E_h: P_s follows each epoch numbered (from 0) above it
    refresh_at_task_end: bool = True  # P_s once more when a task ends
    initial_p_h: Literal["first", "random"] = "first"  # the units retained at the start
    heterogeneous_draw: Draw = "batch"  # one mask for the batch, or for each sample
    semantic_draw: Draw = "batch"
    mask_choice: Literal["class", "unit"] = "class"  # semantic where the class has any P_s > 0, or the unit has
    replay_dropout: bool = False  # recalled images are dropped too (never counted)

    def network_settings(self) -> dict[str, Any]:
        """What a network needs to know to be sparse."""
        settings = {"active": self.active, "activate": self.activate, "threshold": self.threshold}
        return settings if self.sparse else {}


def per_stage(name: str, value: float | Sequence[float], stages: int) -> tuple[float, ...]:
    """A number for each stage, from one for all or from a list.

    A list speaks of the last stages: of a longer one, a network with fewer stages takes the end.
    """
    if not isinstance(value, Sequence):
        return (value,) * stages
    if len(value) < stages:
        raise UsageError(f"{name} has {len(value)} values, but the network has {stages} stages: give one for each")
    return tuple(value)[len(value) - stages :]


class Masks(Sequence[Tensor | None]):
    """A mask for each stage that has one, found beside the stages before it."""

    def __init__(self, stages: int, masks: Mapping[int, Tensor], side: SideStream) -> None:
        self._stages, self._masks, self._side = stages, masks, side

    def __len__(self) -> int:
        return self._stages

    def __getitem__(self, l: int) -> Tensor | None:  # type: ignore[override]
        if not 0 <= l < self._stages:
            raise IndexError(l)
        if l in self._masks:
            self._side.join(self._masks[l])
        return self._masks.get(l)


class SparseCode:
    """Activity counters and the dropout they drive, for every stage of a network.

    `a_s[l]` [C, N] counts how often each unit of stage l was active for each class, `a_g[l]` [N] in all;
    `p_h[l]` and `p_s[l]` are the retention probabilities of Eq. 1 and Eq. 2.
    """

    margin = 1.1  # of units that pass heterogeneous dropout, so that k-WTA still has a choice

    def __init__(self, coding: Coding, units: Sequence[int], classes: int, generator: torch.Generator) -> None:
        n, device = len(units), generator.device
        self.coding, self.generator, self.side = coding, generator, SideStream(device)
        self.pi_h = per_stage("pi_h", coding.pi_h, n)
        self.pi_s = per_stage("pi_s", coding.pi_s, n)
        self.stages = {"last": [n - 1], "all": list(range(n)), "none": []}[coding.dropout]
        active = per_stage("active", coding.active if coding.sparse else 1.0, n)
        self.retained = [max(1, int(min(self.margin * a * n, n) + 1e-9)) for a, n in zip(active, units, strict=True)]
        self.counts = torch.zeros(classes, sum(units), dtype=torch.int64, device=device)  # of all stages
        self.a_s = self.counts.split(tuple(units), dim=1)
        self.p_s = [torch.zeros(classes, n, device=device) for n in units]
        self.p_h = [torch.zeros(n, device=device) for n in units]
        for p_h, retained in zip(self.p_h, self.retained, strict=True):
            if coding.initial_p_h == "first":
                p_h[:retained] = 1.0
            else:
                p_h[torch.rand(len(p_h), generator=generator, device=device).topk(retained).indices] = 1.0

    def keep(self, y: Tensor, spared: int = 0) -> "Masks":
        """The dropout mask [B, N] of each stage for samples of classes y; None where a stage has none.

        The first `spared` samples lose nothing.
        """
        if not self.stages:
            return Masks(len(self.p_h), {}, self.side)
        with self.side.run(y):
            masks = {l: self._mask(l, y, spared) for l in self.stages}
        return Masks(len(self.p_h), masks, self.side)

    def _mask(self, l: int, y: Tensor, spared: int) -> Tensor:
        rows = {"batch": 1, "sample": len(y)}
        heterogeneous = sample_units(
            self.p_h[l], self.retained[l], rows[self.coding.heterogeneous_draw], self.generator
        )
        size = (rows[self.coding.semantic_draw], self.p_s[l].shape[1])
        u = torch.rand(size, generator=self.generator, device=y.device)
        return _choose(heterogeneous, u, self.p_s[l], y, spared, self.coding.mask_choice == "unit")

    @property
    def a_g(self) -> list[Tensor]:
        """How often each unit was active, for any class."""
        return [a_s.sum(0) for a_s in self.a_s]

    def count(self, fired: Sequence[Tensor], y: Tensor) -> None:
        """Counts which units fired ([B, N] a stage) for samples of classes y."""
        self.counts.index_add_(0, y, _numbers(list(fired)))

    def refresh_semantic(self) -> None:
        """P_s from the class-wise counts (Eq. 2)."""
        for p_s, a_s, pi_s in zip(self.p_s, self.a_s, self.pi_s, strict=True):
            p_s.copy_(semantic_probability(a_s, pi_s))

    def refresh_heterogeneous(self) -> None:
        """P_h from the counts over all training so far (Eq. 1)."""
        for p_h, a_g, pi_h in zip(self.p_h, self.a_g, self.pi_h, strict=True):
            p_h.copy_(heterogeneous_probability(a_g, pi_h))

    def tensors(self) -> Mapping[str, Tensor]:
        """The live state, by name."""
        kinds = {"a_s": self.a_s, "p_h": self.p_h, "p_s": self.p_s}
        return {f"{kind}.{l + 1}": t for kind, stages in kinds.items() for l, t in enumerate(stages)}


@compiled
def _choose(heterogeneous: Tensor, u: Tensor, p_s: Tensor, y: Tensor, spared: int, by_unit: bool) -> Tensor:
    """Algorithm 3: the semantic mask where a class (or unit) has one, else the heterogeneous; none for the spared."""
    p = p_s[y]  # [B, N]
    learned = p > 0 if by_unit else p.sum(1, keepdim=True) > 0
    mask = torch.where(learned, (u <= p).float(), heterogeneous)
    return torch.where(torch.arange(len(y), device=y.device)[:, None] < spared, 1.0, mask)


@compiled
def _numbers(fired: list[Tensor]) -> Tensor:
    return torch.cat(fired, 1).long()
