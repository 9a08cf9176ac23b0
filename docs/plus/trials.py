"""A plugin of what was tried for `plus`: further averages, mixed images, contrast, and class statistics at inference.

`scommer run s-cifar10 --variant plus --validation 0.1 --set mix=cutmix --plugin docs/plus/trials.py`
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize

from scommer.engine import evaluate
from scommer.gpu.compiling import compiled
from scommer.gpu.side_stream import record_event
from scommer.memory import LongTermMemory
from scommer.methods import METHODS, Batch, Memories, MemoryFactory, Outcome, View
from scommer.methods.base import TaskImages, concatenate
from scommer.methods.scommer import SCoMMER, _decay, _teach

Batches = Callable[[int], Iterable[tuple[Tensor, Tensor]]]

TURNS = 4  # by 0, 90, 180 and 270°
KEPT = 1000  # images of the last task whose logits are kept
NAMED = ("horizon", "balance", "teach", "teacher", "gamma", "mix", "rotate", "contrast", "align")
_KEPT: dict[int, tuple[dict[str, Tensor], int]] = {}
_FILES: dict[int, str] = {}
_IMAGES: dict[int, TaskImages] = {}
_TASKS: dict[int, list[Tensor]] = {}  # the images of each task so far, by the method's memories, for an upper bound


@dataclass(frozen=True)
class Trials(SCoMMER):
    """SCoMMER with what may help. No other memory learns from the further averages."""

    horizons: tuple[float, ...] = ()  # fractions of a task to average over
    recents: tuple[float, ...] = ()  # fractions of all steps so far to average over
    mix: Literal["none", "cutmix", "mixup", "across"] = "none"  # images of a batch; across: recalled with the task's
    mix_share: float = 0.5  # of the images that are mixed
    rotate: float = 0.0  # share of images turned by 90, 180 or 270°, each turn of a class being a class of its own
    contrast: float = 0.0  # weight of a supervised contrastive loss on the features
    align: float = 0.0  # weight of the angle between both memories' features of the images of a step
    discriminant: bool = False  # evaluate linear discriminants of the features of the first further average
    heads: bool = False  # evaluate slow features with faster heads; at the end, keep all logits

    def memories(self, factory: MemoryFactory) -> Memories:
        turned = replace(factory, classes=TURNS * factory.classes) if self.rotate else factory
        made = super().memories(turned)
        for name in self._averages():
            made.long_term[name] = factory.long_term(made.working, "coin")
        if self.heads:
            for slow, fast in self._pairs():
                made.long_term[f"{slow}+{fast}"] = factory.long_term(made.working, "coin")
        if self.discriminant:
            for name in ("lda", "ncm", "bound"):
                made.long_term[name] = factory.long_term(made.working, "coin")
            features = made.working.network.head.in_features
            made.state["mean"] = factory.zeros(factory.classes, features, dtype=torch.float64)
            made.state["scatter"] = factory.zeros(features, features, dtype=torch.float64)
            made.state["rows"] = factory.zeros(factory.classes, dtype=torch.float64)
        return made

    def _averages(self) -> dict[str, tuple[float, float]]:
        by_task = {f"average{h:g}": (h, 0.0) for h in self.horizons}
        return by_task | {f"recent{f:g}": (10.0, f) for f in self.recents}

    def _pairs(self) -> list[tuple[str, str]]:
        """Return the memories that give the features and the head."""
        slow = [f"average{h:g}" for h in self.horizons if h > self.horizon]
        return [(name, head) for name in slow for head in ("long_term", "working")]

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        if self.mix == "none" and not self.contrast and not self.rotate and not self.align:
            return super().loss(memories, task, recalled)
        x, y = concatenate(*recalled, task)
        n = len(y) - len(task.y)
        other, weight = y, torch.ones_like(y, dtype=torch.float32)
        if self.mix != "none":
            generator = memories.long_term["long_term"].generator
            u = torch.rand(5, len(y), generator=generator, device=y.device)
            across = self.mix == "across"
            x, other, weight = _mixed(x, y, u, n, across, self.mix == "mixup", self.mix_share)
            x = x.contiguous(memory_format=torch.channels_last)
        current, earlier = (memories.state[name] for name in ("current", "earlier"))
        shift = self._log_shares(memories, task, n)
        if self.rotate:
            classes = len(current) // TURNS
            generator = memories.long_term["long_term"].generator
            u = torch.rand(2, len(y), generator=generator, device=y.device)
            x, y = _turned(x, y, u, self.rotate, classes)
            x = x.contiguous(memory_format=torch.channels_last)
            other = y
            current, earlier = (t[:classes].repeat(TURNS) for t in (current, earlier))
            shift = None if shift is None else shift[:classes].repeat(TURNS)
        both = Batch(x, y, ready=record_event(x.device))
        parts = [
            b._replace(x=part, ready=both.ready)
            for b, part in zip((*recalled, task), x.split([n, len(y) - n] if n else [len(y)]), strict=True)
        ]
        apart = n > 0 and not self.joint_batch
        found: list[Tensor] = []
        hook = memories.working.network.head.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        z, fired = memories.working(x, None, parts=(n, len(task.y)) if apart else None)
        hook.remove()
        slow = memories.long_term["long_term"]
        theirs: list[Tensor] = []
        hook = slow.network.head.register_forward_pre_hook(lambda _, inputs: theirs.append(inputs[0]))
        z_s, taught = self._retrieve(memories, both, parts[-1], *parts[:-1])
        hook.remove()
        loss = _loss(z, y, other, weight, z_s, n, self.gamma, torch.zeros_like(z[0]) if shift is None else shift)
        if taught is not None:
            loss = loss + _teach(z[n:], taught, earlier, current, self.teach)
        if self.align and theirs:
            slow.side.join(theirs[0])
            loss = loss + self.align * _angle(found[0].float(), theirs[0].float())
        if self.contrast:
            loss = loss + self.contrast * _contrast(found[0].float(), y)
        return Outcome(loss, z[n:], [f[n:] for f in fired])

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        super().after_step(memories, task, outcome)
        for name, (horizon, recent) in self._averages().items():
            memory = memories.long_term[name]
            alpha = _decay(memory.step, memories.task_steps, self.r, horizon, recent)
            memory.consolidate(memories.working, self.r, alpha, self.ramp)

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        if self.heads:
            _IMAGES[id(memories)] = images
        if self.discriminant:
            self._discriminate(memories, images)
        super().after_task(memories, images)

    @torch.no_grad()
    def _discriminate(self, memories: Memories, images: TaskImages) -> None:
        """Set the heads of further memories from class statistics, which move with the drift of the features."""
        tasks = _TASKS.setdefault(id(memories), [])
        tasks.append(images.index)
        lda, state = memories.long_term["lda"], memories.state
        average = memories.long_term[next(iter(self._averages()))]
        task = _batches(images, images.index)
        episodic = memories.episodic
        assert episodic is not None
        filled = int(episodic.seen.clamp(max=episodic.capacity))
        stored = episodic.fields["x"][:filled]
        fresh = images.images[images.index[:2000].to(stored.device)]
        x = images.normalise(torch.cat([fresh, stored]))
        before = _features(lda, x)
        mixed = []
        for _, (raw, _) in zip(range(40), task(32), strict=False):
            at = torch.randint(filled, (32,), generator=images.generator)
            mixed.append(torch.cat([raw, images.normalise(stored[at.to(stored.device)])]))
        statistics = average.statistics("recalibrated", memories.working, mixed)
        for name in ("lda", "ncm", "bound"):
            memories.long_term[name].copy_from(average)
            memories.long_term[name].weights.statistics.copy_(statistics)
        if len(tasks) > 1:
            after = _features(lda, x)
            f = torch.cat([before, torch.ones_like(before[:, :1])], 1)
            eye = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
            ridge = 1e-3 * f.square().sum() / f.shape[1] * eye
            move = eye[:, :-1] + torch.linalg.solve(f.T @ f + ridge, f.T @ (after - before))
            seen = (state["rows"] > 0)[:, None]
            moved = torch.cat([state["mean"], torch.ones_like(state["mean"][:, :1])], 1) @ move
            state["mean"].copy_(torch.where(seen, moved, 0.0))
            state["scatter"].copy_(move[:-1].T @ state["scatter"] @ move[:-1])
        _add_statistics(lda, task, state["mean"], state["scatter"], state["rows"])
        _set_head(lda, state["mean"], state["scatter"], state["rows"], 0.05)
        _set_head(memories.long_term["ncm"], state["mean"], state["scatter"], state["rows"], 1.0)
        everything = _batches(images, torch.cat(tasks))
        mean, scatter, rows = (torch.zeros_like(state[name]) for name in ("mean", "scatter", "rows"))
        _add_statistics(lda, everything, mean, scatter, rows)
        _set_head(memories.long_term["bound"], mean, scatter, rows, 0.05)

    def views(self, memories: Memories, calibration: Iterable[Tensor]) -> list[View]:
        own = ("lda", "ncm", "bound")
        earlier = memories.state["earlier"]
        last = self.heads and bool((earlier[: len(earlier) // (TURNS if self.rotate else 1)] > 0).all())
        further = [
            View(
                name,
                memory,
                memory.weights.statistics.clone()
                if name in own
                else memory.statistics("recalibrated", memories.working, calibration),
            )
            for name, memory in memories.long_term.items()
            if "+" not in name
            for choice in (["replay"] if name in own else ["recalibrated"] if name in self._averages() else [])
        ]
        if self.heads:
            statistics = {view.name: view.statistics for view in further}
            for slow, fast in self._pairs():
                if slow not in statistics:  # before the first task
                    break
                memory = memories.long_term[f"{slow}+{fast}"]
                memory.copy_from(memories.long_term[slow])
                head = (memories.working if fast == "working" else memories.long_term[fast]).network.head
                memory.network.head.load_state_dict(head.state_dict())
                memory.weights.sync_half()
                further.append(View(f"{slow}+{fast}", memory, statistics[slow]))
        views = super().views(memories, calibration) + further
        if last:
            _keep_logits(self, memories, views)
        return views


@torch.no_grad()
def _keep_logits(method: Trials, memories: Memories, views: list[View]) -> None:
    """Keep the logits of images of the last task and of memory; those of the images scored are added as they come."""
    images, episodic = _IMAGES[id(memories)], memories.episodic
    assert episodic is not None
    filled = int(episodic.seen.clamp(max=episodic.capacity))
    classes = len(memories.state["earlier"]) // (TURNS if method.rotate else 1)
    index = images.index[:: -(-len(images.index) // KEPT)].to(images.labels.device)
    kept: dict[str, Tensor] = {"task_y": images.labels[index], "memory_y": episodic.fields["y"][:filled]}
    for view in views:
        network = view.memory.network.eval()
        with view.memory.weights.using_statistics(view.statistics):
            for name, x in (("task", images.images[index]), ("memory", episodic.fields["x"][:filled])):
                parts = [network(images.normalise(part)).logits[:, :classes] for part in x.split(500)]
                kept[f"{view.name}/{name}"] = torch.cat(parts).half()
        network.train()
        _KEPT[id(view.memory)] = (kept, id(memories))
    name = "-".join(f"{f.name}={getattr(method, f.name)}" for f in fields(method) if f.name in NAMED)
    _FILES[id(memories)] = f"{name}-{id(memories)}".replace(" ", "")


def _respond(view: View, *given: Any) -> Any:
    logits, activity = _ORIGINAL(view, *given)
    if found := _KEPT.get(id(view.memory)):
        kept, key = found
        kept[f"{view.name}/scored"] = logits.half()
        folder = Path(os.environ.get("KEEP_LOGITS", "logits"))
        folder.mkdir(exist_ok=True, parents=True)
        kept["scored_y"] = given[1]
        np.savez_compressed(folder / f"{_FILES[key]}.npz", **{k: t.cpu().numpy() for k, t in kept.items()})
    return logits, activity


@compiled
def _mixed(
    x: Tensor, y: Tensor, u: Tensor, n: int, across: bool, mixup: bool, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mix each image with another one of its part, or of all; return images, labels of the others, own weights."""
    order = u[0] if across or not n else u[0] + (torch.arange(len(y), device=y.device) >= n)
    other = order.argsort()
    weight = torch.where(u[1] < share, u[2], 1.0)
    if mixup:
        w = weight[:, None, None, None].to(x.dtype)
        return w * x + (1 - w) * x[other], y[other], weight
    h, w = x.shape[2:]
    half = (1 - weight).sqrt() / 2
    rows, columns = torch.arange(h, device=x.device) + 0.5, torch.arange(w, device=x.device) + 0.5
    inside_rows = (rows - u[3][:, None] * h).abs() < half[:, None] * h
    inside_columns = (columns - u[4][:, None] * w).abs() < half[:, None] * w
    inside = inside_rows[:, :, None] & inside_columns[:, None, :]
    weight = 1 - inside.float().mean((1, 2))
    return torch.where(inside[:, None], x[other], x), y[other], weight


@compiled
def _turned(x: Tensor, y: Tensor, u: Tensor, share: float, classes: int) -> tuple[Tensor, Tensor]:
    """Turn some images by a random multiple of 90°, and return them with their labels among TURNS · classes."""
    turn = torch.where(u[0] < share, 1 + (u[1] * (TURNS - 1)).long(), 0)
    made = x
    for k in range(1, TURNS):
        made = torch.where((turn == k)[:, None, None, None], x.rot90(k, (2, 3)), made)
    return made, y + classes * turn


@compiled
def _loss(
    z: Tensor, y: Tensor, other: Tensor, weight: Tensor, z_s: Tensor | None, n: int, gamma: float, shift: Tensor
) -> Tensor:
    logits = z + shift
    each = weight * cross_entropy(logits, y, reduction="none") + (1 - weight) * cross_entropy(
        logits, other, reduction="none"
    )
    loss = each[:n].mean() + each[n:].mean() if n else each.mean()
    return loss if z_s is None else loss + gamma * mse_loss(z[:n], z_s)


@compiled
def _contrast(features: Tensor, y: Tensor) -> Tensor:
    """Return the supervised contrastive loss (Khosla et al., 2020) of one view of each image."""
    f = normalize(features, dim=1)
    own = torch.eye(len(y), dtype=torch.bool, device=y.device)
    similarity = (f @ f.T / 0.2).masked_fill(own, -1e4)
    alike = (y[:, None] == y) & ~own
    likely = similarity.log_softmax(1) * alike
    each = -likely.sum(1) / alike.sum(1).clamp(min=1)
    return each.mean()


@compiled
def _angle(features: Tensor, theirs: Tensor) -> Tensor:
    return (1 - (normalize(features, dim=1) * normalize(theirs, dim=1)).sum(1)).mean()


def _batches(images: TaskImages, index: Tensor) -> Batches:
    def batches(size: int) -> Iterable[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(index), generator=images.generator)
        for part in index[order].to(images.images.device).split(size):
            yield images.normalise(images.images[part]), images.labels[part]

    return batches


def _features(memory: LongTermMemory, x: Tensor) -> Tensor:
    """Return the inputs of the head in evaluation mode."""
    found: list[Tensor] = []
    head = memory.network.head
    hook = head.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].double()))
    memory.network.eval()
    for part in x.split(500):
        memory.network(part)
    memory.network.train()
    hook.remove()
    return torch.cat(found)


def _add_statistics(memory: LongTermMemory, batches: Batches, mean: Tensor, scatter: Tensor, rows: Tensor) -> None:
    pairs = [(_features(memory, x), y) for x, y in batches(500)]
    f, y = torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])
    for c in y.unique().tolist():
        own = f[y == c]
        mean[c] = own.mean(0)
        rows[c] = len(own)
        scatter.add_((own - mean[c]).T @ (own - mean[c]))


def _set_head(memory: LongTermMemory, mean: Tensor, scatter: Tensor, rows: Tensor, shrinkage: float) -> None:
    covariance = scatter / rows.sum()
    level = covariance.trace() / len(covariance)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    shrunk = (1 - shrinkage) * covariance + shrinkage * level * eye
    weight = torch.linalg.solve(shrunk, mean.T).T
    head: nn.Linear = memory.network.head
    head.weight.copy_(weight)
    head.bias.copy_(torch.where(rows > 0, -(weight * mean).sum(1) / 2, -1e4))


_ORIGINAL = evaluate._respond
evaluate._respond = _respond
METHODS["scommer"] = Trials
