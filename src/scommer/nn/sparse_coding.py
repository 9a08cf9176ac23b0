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
    """Keep the k = int(ratio·N) units of each sample with the highest scores, and set the others to 0 (Algorithm 2).

    In `x` [B, N, H, W] a unit is a filter and its score is Σ|x| over its map; in `x` [B, N] its score is |x|. Units win
    if their score is above the (k+1)-th highest: exactly k of them, or fewer if there are ties at the threshold, which
    lose. `threshold="k-1"` is the threshold of the paper's text, the k-th highest score, so that k - 1 units win. The
    gradient flows through winners only. The ReLU at the end of Algorithm 2 is left to the caller.
    """
    rank = threshold_rank(ratio, x.shape[1], threshold)
    if not rank:
        return x
    precise = torch.promote_types(x.dtype, torch.float32)  # half precision would cause ties
    score = x.abs().flatten(2).sum(2, dtype=precise) if x.dim() > 2 else x.abs()  # [B, N]
    limit = _at_rank(score.detach(), rank)
    wins = (score > limit).to(x.dtype)
    return x * wins.reshape(wins.shape + (1,) * (x.dim() - 2))


def _at_rank(score: Tensor, rank: int) -> Tensor:
    """Return the score of this rank in each row, as a column."""
    # On a CPU kthvalue is ten times faster. A GPU has no deterministic version of it, and ONNX has none.
    if score.device.type == "cpu" and not torch.compiler.is_exporting():
        return score.kthvalue(score.shape[1] - rank + 1, dim=1, keepdim=True).values
    return score.topk(rank, dim=1).values[:, -1:]


def threshold_rank(ratio: float, units: int, threshold: Threshold = "k") -> int:
    """Return the rank of the score that winners exceed; 0 if all units win."""
    k = num_winners(ratio, units)
    if threshold == "k-1":
        return k
    return k + 1 if k < units else 0


def num_winners(ratio: float, units: int) -> int:
    """Return k = int(ratio·N)."""
    if not 0 < ratio <= 1:
        raise UsageError(f"invalid active = {ratio}: give a number above 0 and at most 1")
    k = int(ratio * units + 1e-9)  # a product just below a whole number, such as 0.29 · 100, counts as that number
    if k < 1:
        raise UsageError(f"active = {ratio} leaves none of {units} units active: raise active or width")
    return k


def heterogeneous_probability(a_g: Tensor, pi_h: float) -> Tensor:
    """Return P_h, the probability of retaining a unit for new classes: lower for units active so far (Eq. 1)."""
    return torch.exp(-pi_h * _relative(a_g))


def semantic_probability(a_s: Tensor, pi_s: float) -> Tensor:
    """Return P_s, the probability of retaining a unit for a class: higher for units active for it (Eq. 2)."""
    return 1 - torch.exp(-pi_s * _relative(a_s))


def _relative(counts: Tensor) -> Tensor:
    """Divide counts by the maximum of their row; a row of zeros stays zero."""
    return counts.float() / counts.amax(-1, keepdim=True).clamp(min=1)


def sample_units(weight: Tensor, n: int, rows: int, generator: torch.Generator) -> Tensor:
    """Draw a mask [rows, N] with n units in each row, by weight and without replacement.

    If unit i has an arrival time drawn from an exponential distribution with rate weight[i], the first n to arrive are
    a weighted sample without replacement. Units of weight 0 arrive last.
    """
    exponential = torch.empty(rows, len(weight), device=weight.device).exponential_(generator=generator)
    first = _log_arrival(exponential, weight).topk(n, dim=1, largest=False, sorted=False).indices
    return torch.zeros_like(exponential).scatter_(1, first, 1.0)


@compiled
def _log_arrival(exponential: Tensor, weight: Tensor) -> Tensor:
    """Return log(exponential / weight), which stays in range for very small weights."""
    return exponential.log() - weight.log()


@dataclass(frozen=True)
class Coding:
    """Settings of sparse coding. Defaults are those of the published implementation."""

    sparse: bool = True  # whether units compete: k-WTA, or dense activations
    active: float | tuple[float, ...] = (0.9, 0.9, 0.9, 0.8)  # %k, fraction of units that stay active, in each stage
    activate: Literal["stage", "block"] = "stage"  # where units compete: at the end of each stage, or of each block
    threshold: Threshold = "k"  # how many units win: k, or k - 1 as in the paper's text
    dropout: Literal["last", "all", "none"] = "last"  # stages with dropout
    pi_h: float | tuple[float, ...] = (0.5, 0.5, 5.0, 5.0)  # π_h, strength of heterogeneous dropout, in each stage
    pi_s: float | tuple[float, ...] = 2.0  # π_s, strength of semantic dropout, in each stage
    warmup: int = 29  # E_h, epoch of a task, counted from 0, after which P_s is updated with every epoch
    refresh_at_task_end: bool = True  # update P_s also when a task ends
    initial_p_h: Literal["first", "random"] = "first"  # units that heterogeneous dropout retains at the start
    heterogeneous_draw: Draw = "batch"  # draw heterogeneous dropout for the whole batch, or for each image
    semantic_draw: Draw = "batch"  # draw semantic dropout for the whole batch, or for each image
    mask_choice: Literal["class", "unit"] = "class"  # use P_s once it is above 0 for the class, or for the unit itself
    replay_dropout: bool = False  # dropout for recalled images too; their activity is never counted

    def network_settings(self) -> dict[str, Any]:
        """Return the settings that make a network sparse."""
        settings = {"active": self.active, "activate": self.activate, "threshold": self.threshold}
        return settings if self.sparse else {}


def per_stage(name: str, value: float | Sequence[float], stages: int) -> tuple[float, ...]:
    """Return a number for each stage, from one number for all stages or from a list.

    A network with fewer stages than the list has values takes the last ones.
    """
    if not isinstance(value, Sequence):
        return (value,) * stages
    if len(value) < stages:
        raise UsageError(f"{name} has {len(value)} values, but the network has {stages} stages: give one for each")
    return tuple(value)[len(value) - stages :]


class Masks(Sequence[Tensor | None]):
    """The dropout mask of each stage, or None. A side stream computes them while the first stages run."""

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
    """Activity counters and the dropout that they control, for all stages of a network.

    `a_s[l]` [C, N] counts how often each unit of stage l was active for each class, and `a_g[l]` [N] for all classes.
    `p_h[l]` and `p_s[l]` are the retention probabilities of Eq. 1 and Eq. 2.
    """

    margin = 1.1  # heterogeneous dropout retains more units than k-WTA keeps, to leave it a choice

    def __init__(self, coding: Coding, units: Sequence[int], classes: int, generator: torch.Generator) -> None:
        stages, device = len(units), generator.device
        self.coding, self.generator, self.side = coding, generator, SideStream(device)
        self.pi_h = per_stage("pi_h", coding.pi_h, stages)
        self.pi_s = per_stage("pi_s", coding.pi_s, stages)
        self.stages = {"last": [stages - 1], "all": list(range(stages)), "none": []}[coding.dropout]
        active = per_stage("active", coding.active if coding.sparse else 1.0, stages)
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

    def dropout_masks(self, y: Tensor, exempt: int = 0) -> Masks:
        """Draw the dropout mask [B, N] of each stage for samples of classes y; None for stages without dropout.

        The first `exempt` samples retain all their units.
        """
        if not self.stages:
            return Masks(len(self.p_h), {}, self.side)
        with self.side.run(y):
            masks = {l: self._mask(l, y, exempt) for l in self.stages}
        return Masks(len(self.p_h), masks, self.side)

    def _mask(self, l: int, y: Tensor, exempt: int) -> Tensor:
        rows = {"batch": 1, "sample": len(y)}
        heterogeneous = sample_units(
            self.p_h[l], self.retained[l], rows[self.coding.heterogeneous_draw], self.generator
        )
        size = (rows[self.coding.semantic_draw], self.p_s[l].shape[1])
        u = torch.rand(size, generator=self.generator, device=y.device)
        return _select(heterogeneous, u, self.p_s[l], y, exempt, self.coding.mask_choice == "unit")

    @property
    def a_g(self) -> list[Tensor]:
        """How often each unit was active, over all classes."""
        return [a_s.sum(0) for a_s in self.a_s]

    def count(self, fired: Sequence[Tensor], y: Tensor) -> None:
        """Add the units that fired ([B, N] for each stage) to the counts of the classes y."""
        self.counts.index_add_(0, y, _concatenate(list(fired)))

    def refresh_semantic(self) -> None:
        """Compute P_s from the counts of each class (Eq. 2)."""
        for p_s, a_s, pi_s in zip(self.p_s, self.a_s, self.pi_s, strict=True):
            p_s.copy_(semantic_probability(a_s, pi_s))

    def refresh_heterogeneous(self) -> None:
        """Compute P_h from the counts over all training so far (Eq. 1)."""
        for p_h, a_g, pi_h in zip(self.p_h, self.a_g, self.pi_h, strict=True):
            p_h.copy_(heterogeneous_probability(a_g, pi_h))

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state by name."""
        kinds = {"a_s": self.a_s, "p_h": self.p_h, "p_s": self.p_s}
        return {f"{kind}.{l + 1}": t for kind, stages in kinds.items() for l, t in enumerate(stages)}


@compiled
def _select(heterogeneous: Tensor, u: Tensor, p_s: Tensor, y: Tensor, exempt: int, by_unit: bool) -> Tensor:
    """Return the semantic mask where a class (or unit) has P_s > 0, else the heterogeneous one (Algorithm 3)."""
    p = p_s[y]  # [B, N]
    learned = p > 0 if by_unit else p.sum(1, keepdim=True) > 0
    mask = torch.where(learned, (u < p).float(), heterogeneous)
    return torch.where(torch.arange(len(y), device=y.device)[:, None] < exempt, 1.0, mask)


@compiled
def _concatenate(fired: list[Tensor]) -> Tensor:
    return torch.cat(fired, 1).long()
