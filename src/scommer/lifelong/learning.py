"""ClassifierState from images: what is known once they are learned too, and what it answers."""

import time
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scommer import provenance
from scommer.data import Dataset
from scommer.data.dataset import Array, Layout, as_images
from scommer.device import choose_device, choose_precision, kept_memory
from scommer.engine.augment import Augment
from scommer.engine.learner import Learner
from scommer.errors import RunError, RunWarning, UsageError
from scommer.lifelong.labels import Labels, classes_of, numbers
from scommer.lifelong.state import ClassifierState
from scommer.runs.experiment import FLAT, Experiment, Plan, prepare
from scommer.runs.recording import final_weights
from scommer.runs.run import Watch
from scommer.runs.trained import trained, under
from scommer.streams import Stream, Task

FAR = 20.0  # standard deviations between the images learned first and others of another form, on average
ASTRAY = 1e6  # logits beyond it


def learned(
    known: ClassifierState | None,
    init: dict[str, Any],
    images: Array,
    labels: Labels,
    layout: Layout,
    device: str | None,
    precision: str | None,
    watch: Watch,
) -> ClassifierState:
    """What is known once these images are learned too, as one task; `init` is what a classifier was made with."""
    began, where = time.monotonic(), choose_device(device)
    classes = np.array(classes_of(init["classes"]))
    x = _images(images, layout, known)
    y = torch.from_numpy(numbers(labels, len(x), classes))
    stream = _one_task(torch.from_numpy(x), y, classes)
    given = {name: init[name] for name in ("method", "buffer", "seed", "variant")}
    asked = Experiment(stream, **given, settings=known.settings if known else init["settings"])
    plan = prepare(asked)
    _check_images(plan, first=known is None and "std" not in init["settings"])
    with kept_memory(where):
        learner = Learner(
            stream, plan.method, plan.training, buffer=asked.buffer, seed=asked.seed, device=where,
            precision=choose_precision(precision, where), earlier=len(known.history) if known else 0,
        )  # fmt: skip
        if known:
            _take_up(learner, known)
        watch.begin(plan, learner, 1)
        try:
            for moment in learner.learn():
                watch.moment(learner, moment)
        finally:
            watch.end()
        state, values = learner.state()
        weights = final_weights(learner)
    memories = {name: under(f"{name}.", weights) for name in {"working", plan.method.inference}}
    networks = {
        name: trained(asked.method, plan.settings, stream.data.class_names, x.shape[1:], tensors, where)
        for name, tensors in memories.items()
    }
    for network in networks.values():
        if not bool((network.respond(stream.data.train_images[:32]).abs() < ASTRAY).all()):  # nor NaN
            raise RunError(
                f"training went astray: lower the learning rate (now lr = {plan.training.lr}), or check the images"
            )
    if trouble := learner.divergence():
        watch.warn(trouble)
    told = {
        "images": len(y), "range": [float(x.min()), float(x.max())],
        "classes": classes[list(stream.tasks[0].classes)].tolist(),
        "loss": learner.curve[-1], "seconds": round(time.monotonic() - began, 2), "finished": provenance.now(),
    }  # fmt: skip
    return ClassifierState(
        state={k: t.cpu() for k, t in state.items() if k.startswith(("memories/", "generator/"))},
        weights=memories[plan.method.inference],
        answering=networks[plan.method.inference],
        settings=plan.settings,
        form=(str(x.dtype), x.shape[1:]),
        offered=values["offered"],
        device=where.type,
        init=init,
        history=(*(known.history if known else ()), told),
    )


def probabilities(known: ClassifierState, images: Array, layout: Layout) -> NDArray[np.float32]:
    """The probability [N, C] of each class for these images, 0 for those that have not come yet."""
    x = torch.from_numpy(_images(images, layout, known))
    if (distance := _distance(known.answering.augment, x)) > FAR:
        warnings.warn(
            f"these images are {distance:.0f} standard deviations from those learned, on average: "
            "were they given in another scale (0 … 1 or 0 … 255)?",
            RunWarning,
            stacklevel=3,
        )
    logits = known.answering.respond(x)
    found: NDArray[np.float32] = logits.masked_fill(torch.from_numpy(~known.seen), -torch.inf).softmax(1).numpy()
    return found


def _images(images: Array, layout: Layout, known: ClassifierState | None) -> NDArray[Any]:
    """Images as [N, C, H, W], in the form that was learned."""
    x = as_images(images, layout=layout)
    form = (str(x.dtype), x.shape[1:])
    if known and known.form != form:
        given, learned = (f"{d} {' × '.join(map(str, shape))}" for d, shape in (form, known.form))
        raise UsageError(f"these images are {given} (channels, height, width), those learned before are {learned}")
    return x


def _one_task(images: Tensor, labels: Tensor, classes: NDArray[Any]) -> Stream:
    """Images as a stream of one task, without test images."""
    data = Dataset("given", images, labels, images[:0], labels[:0], tuple(map(str, classes)))
    task = Task(torch.arange(len(labels)), labels[:0], tuple(labels.unique().tolist()))
    return Stream("lifelong", "gcil", data, (task,))


def _check_images(plan: Plan, first: bool) -> None:
    """Refuses images that cannot be normalised, or are of another scale than those before."""
    if first and max(plan.settings["std"]) <= FLAT:
        raise UsageError("the first images are too much alike to learn mean and std from: give both in settings")
    usual = Augment(0, False, plan.settings["mean"], plan.settings["std"])
    if (distance := _distance(usual, plan.stream.data.train_images)) > FAR:
        raise UsageError(
            f"these images are {distance:.0f} standard deviations from those learned first, on average: "
            "give them in the same scale (0 … 1 or 0 … 255), or set mean and std from the beginning"
        )


def _distance(augment: Augment, images: Tensor) -> float:
    """How many standard deviations images are from the mean, on average over the first of them."""
    return float(augment.normalise(images[:1000].to(augment.mean.device)).abs().mean())


def _take_up(learner: Learner, known: ClassifierState) -> None:
    """Brings a new learner to where the last one ended, at the beginning of a task."""
    fresh, _ = learner.state()
    state = {**known.state, "order": fresh["order"], "loss": fresh["loss"]}
    if known.device != learner.device.type:  # generators of another device cannot be taken up
        state |= {k: t for k, t in fresh.items() if k.startswith("generator/")}
    start = {"task": 0, "epoch": 0, "batch": 0, "offered": known.offered, "curve": [], "scores": {"untrained": 0}}
    learner.restore(state, start)
