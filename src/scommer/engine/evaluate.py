"""Accuracy matrices R[t, i] and the measures derived from them, in percent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn

from scommer.engine.augment import Augment
from scommer.errors import RunError
from scommer.methods import View
from scommer.nn.networks import respond
from scommer.streams import Stream

BINS = 15  # of confidence
BATCH, GPU_BATCH = 800, 2500  # images of 32 × 32 pixels in one forward pass: launches take longest on a GPU


@dataclass(frozen=True)
class Scores:
    """One memory's scores on all of a stream's test sets at one point of training."""

    class_il: np.ndarray  # [T] accuracy among all classes
    task_il: np.ndarray  # [T] accuracy among the task's own classes
    class_accuracy: np.ndarray  # [C], NaN for a class without test images
    class_probability: np.ndarray  # [C] mean softmax over the test images of all tasks
    reliability: np.ndarray  # [BINS, 3] images, summed confidence and hits, by confidence
    activity: list[np.ndarray]  # [C, N] for each stage: how many test images of each class activate each unit

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all fields as named arrays."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "activity"}
        return plain | {f"activity.{l + 1}": a for l, a in enumerate(self.activity)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Scores":
        """Return the scores that `arrays` was called on."""
        stages = sorted((k for k in arrays if k.startswith("activity.")), key=lambda k: int(k.split(".")[1]))
        plain = {k: a for k, a in arrays.items() if k not in stages}
        return cls(**plain, activity=[arrays[k] for k in stages])


@torch.no_grad()
def evaluate(
    view: View,
    stream: Stream,
    images: Tensor,
    labels: Tensor,
    augment: Augment,
    check: Callable[[], None] = lambda: None,
) -> Scores:
    """Score a memory on all test images in one pass.

    `check` is called before each layer, and may raise an error to abandon the evaluation: that changes no memory.
    """
    with _evaluating(view.memory.network, check):
        logits, activity = _respond(view, images, labels, augment, stream.data.num_classes)
    if not torch.isfinite(logits).all():
        raise RunError(f"the {view.name} memory outputs NaN: lower the learning rate")
    hit = logits.argmax(1) == labels  # among all classes, seen or not
    class_il, task_il = [], []
    for task in stream.tasks:
        test, classes = task.test.to(labels.device), torch.tensor(task.classes, device=labels.device)
        class_il.append(hit[test].double().mean())
        within = classes[logits[test][:, classes].argmax(1)]
        task_il.append((within == labels[test]).double().mean())
    n = torch.bincount(labels, minlength=stream.data.num_classes)
    by_class = torch.zeros(len(n), dtype=torch.float64, device=labels.device)
    by_class.index_add_(0, labels, hit.double())
    p = logits.softmax(1)
    seen = torch.cat([task.test for task in stream.tasks]).unique().to(labels.device)
    return Scores(
        class_il=100 * torch.stack(class_il).cpu().numpy(),
        task_il=100 * torch.stack(task_il).cpu().numpy(),
        class_accuracy=100 * (by_class / n).cpu().numpy(),
        class_probability=p[seen].double().mean(0).cpu().numpy(),
        reliability=_reliability(p[seen].amax(1), hit[seen]),
        activity=[a.cpu().numpy() for a in activity],
    )


@torch.no_grad()
def run_once(view: View, images: Tensor, labels: Tensor, augment: Augment, classes: int) -> None:
    """Take the first pass of an evaluation, for what it compiles."""
    size = images_per_pass(images, images.device)
    with _evaluating(view.memory.network, lambda: None):
        _respond(view, images[:size], labels[:size], augment, classes)


@contextmanager
def _evaluating(network: nn.Module, check: Callable[[], None]) -> Iterator[None]:
    """Put a network into evaluation mode, and call `check` before each layer: a batch may take seconds on a CPU."""
    network.eval()
    hooks = [m.register_forward_pre_hook(lambda *_: check()) for m in network.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        network.train()


def images_per_pass(images: Tensor, device: torch.device) -> int:
    """Return how many images a network on a device processes at once: fewer if they are larger."""
    most = GPU_BATCH if device.type == "cuda" else BATCH
    return min(most, max(1, most * 32**2 // images.shape[2:].numel()))


def _respond(view: View, images: Tensor, labels: Tensor, augment: Augment, classes: int) -> tuple[Tensor, list[Tensor]]:
    """Return the logits of all images, and how often each unit was active for each class."""
    logits = []
    activity = [torch.zeros(classes, n, dtype=torch.int32, device=images.device) for n in view.memory.units]
    size = images_per_pass(images, images.device)
    with view.memory.weights.using_statistics(view.statistics):
        for x, y in zip(images.split(size), labels.split(size), strict=True):
            z, fired = respond(view.memory.network, augment.normalise(x), view.mirrored)
            logits.append(z.float())
            for a, f in zip(activity, fired, strict=True):
                a.index_add_(0, y, f.int())
    return torch.cat(logits), activity


def _reliability(confidence: Tensor, hit: Tensor) -> np.ndarray:
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    rows = torch.stack([torch.ones_like(confidence), confidence, hit.float()], 1).double()
    table = torch.zeros(BINS, 3, dtype=torch.float64, device=rows.device).index_add_(0, bins, rows)
    return table.cpu().numpy()


def average_accuracy(r: np.ndarray) -> float:
    """Return the mean over tasks at the end: 1/T Σ_i R[T, i]. On GCIL's nested test sets, its published score."""
    return float(r[-1].mean())


def last_accuracy(r: np.ndarray) -> float:
    """Return R[T, T]: in GCIL, plain accuracy over all classes seen."""
    return float(r[-1, -1])


def forgetting(r: np.ndarray) -> float:
    """Return how much was lost since the best point: 1/(T-1) Σ_{i<T} (max_{t<T} R[t, i] - R[T, i])."""
    return float((r[:-1, :-1].max(0) - r[-1, :-1]).mean())


def backward_transfer(r: np.ndarray) -> float:
    """Return how later tasks changed earlier ones: 1/(T-1) Σ_{i<T} (R[T, i] - R[i, i])."""
    return float((r[-1, :-1] - r.diagonal()[:-1]).mean())


def forward_transfer(r: np.ndarray, untrained: np.ndarray) -> float:
    """Return how earlier tasks helped before learning: 1/(T-1) Σ_{i>1} (R[i-1, i] - b_i), b_i untrained."""
    return float((r.diagonal(1) - untrained[1:]).mean())


def summary(r: np.ndarray, untrained: np.ndarray, kind: str) -> dict[str, float]:
    """Return the measures of a matrix: all of them for a sequence of tasks, accuracy alone for joint training."""
    measures = {"accuracy": average_accuracy(r)}
    if kind == "gcil":
        measures["last"] = last_accuracy(r)
    if len(r) == r.shape[1] > 1:
        measures["forgetting"] = forgetting(r)
        measures["backward_transfer"] = backward_transfer(r)
        if kind != "gcil":  # there the next test set contains all that was learned before
            measures["forward_transfer"] = forward_transfer(r, untrained)
    return measures
