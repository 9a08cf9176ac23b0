"""How a classifier learns a task, and what it predicts."""

import time
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scommer import provenance
from scommer.data import Dataset
from scommer.data.dataset import Array, Layout, as_nchw
from scommer.device import choose_device, choose_precision, computing_on
from scommer.engine.augment import Augment
from scommer.engine.learner import Learner
from scommer.engine.state import restore, state_of
from scommer.errors import RunError, RunWarning, UsageError
from scommer.lifelong.labels import Labels, encode_labels, parse_classes
from scommer.lifelong.state import ClassifierState
from scommer.runs.experiment import MIN_STD, Experiment, Plan, prepare
from scommer.runs.progress import Watch
from scommer.runs.recording import final_weights
from scommer.runs.trained import trained, with_prefix
from scommer.streams import Stream, Task

MAX_DISTANCE = 20.0  # mean distance of images from those of the first task, in standard deviations
MAX_LOGIT = 1e6  # larger ones mean that training diverged


def learn_task(
    state: ClassifierState | None,
    params: dict[str, Any],
    images: Array,
    labels: Labels,
    layout: Layout,
    device: str | None,
    precision: str | None,
    watch: Watch,
) -> ClassifierState:
    """Return the state after learning these images as one task; `params` are those of the constructor."""
    began, where = time.monotonic(), choose_device(device)
    classes = np.array(parse_classes(params["classes"]))
    x = _convert_images(images, layout, state)
    y = torch.from_numpy(encode_labels(labels, len(x), classes))
    stream = _single_task_stream(torch.from_numpy(x), y, classes)
    chosen = {name: params[name] for name in ("method", "buffer", "seed", "variant")}
    experiment = Experiment(stream, **chosen, settings=state.settings if state else params["settings"])
    plan = prepare(experiment)
    _check_scale(plan, fit_std=state is None and "std" not in params["settings"])
    chosen_precision = choose_precision(precision, where)
    with computing_on(where, chosen_precision):
        learner = Learner(
            stream, plan.method, plan.training, buffer=experiment.buffer, seed=experiment.seed, device=where,
            precision=chosen_precision, earlier=len(state.history) if state else 0,
        )  # fmt: skip
        if state:
            _restore(learner, state)
        watch.begin(plan, learner, 1)
        try:
            for moment in learner.learn():
                watch.moment(learner, moment)
        finally:
            watch.end()
        tensors, values = state_of(learner)
        weights = final_weights(learner)
    memories = {name: with_prefix(f"{name}.", weights) for name in {"working", plan.method.inference}}
    networks = {
        name: trained(experiment.method, plan.settings, stream.data.class_names, x.shape[1:], memory, where)
        for name, memory in memories.items()
    }
    for network in networks.values():
        if not bool((network.respond(stream.data.train_images[:32]).abs() < MAX_LOGIT).all()):  # False for NaN too
            raise RunError(
                f"training diverged: lower the learning rate (now lr = {plan.training.lr}), or check the images"
            )
    if trouble := learner.divergence():
        watch.warn(trouble)
    task = {
        "images": len(y), "range": [float(x.min()), float(x.max())],
        "classes": classes[list(stream.tasks[0].classes)].tolist(),
        "loss": learner.curve[-1], "seconds": round(time.monotonic() - began, 2), "finished": provenance.now(),
    }  # fmt: skip
    return ClassifierState(
        tensors={k: t.cpu() for k, t in tensors.items() if k.startswith(("memories/", "generator/"))},
        weights=memories[plan.method.inference],
        network=networks[plan.method.inference],
        settings=plan.settings,
        input_form=(str(x.dtype), x.shape[1:]),
        offered=values["offered"],
        device=where.type,
        params=params,
        history=(*(state.history if state else ()), task),
    )


def probabilities(state: ClassifierState, images: Array, layout: Layout) -> NDArray[np.float32]:
    """Return the probability [N, C] of each class, 0 for classes that have not occurred yet."""
    x = torch.from_numpy(_convert_images(images, layout, state))
    if (distance := _mean_distance(state.network.augment, x)) > MAX_DISTANCE:
        warnings.warn(
            f"these images are {distance:.0f} standard deviations from those learned, on average: "
            "check that they have the same scale (0 … 1 or 0 … 255)",
            RunWarning,
            stacklevel=4,
        )
    logits = state.network.respond(x).masked_fill(torch.from_numpy(~state.seen), -torch.inf)
    found: NDArray[np.float32] = logits.softmax(1).numpy()
    return found


def _convert_images(images: Array, layout: Layout, state: ClassifierState | None) -> NDArray[Any]:
    """Return images as [N, C, H, W], of the same form as those learned before."""
    x = as_nchw(images, layout=layout)
    form = (str(x.dtype), x.shape[1:])
    if state and state.input_form != form:
        given, expected = (f"{d} {' × '.join(map(str, shape))}" for d, shape in (form, state.input_form))
        raise UsageError(f"these images are {given} (channels, height, width), expected {expected} as learned before")
    return x


def _single_task_stream(images: Tensor, labels: Tensor, classes: NDArray[Any]) -> Stream:
    """Return a stream of one task, without test images."""
    data = Dataset("given", images, labels, images[:0], labels[:0], tuple(map(str, classes)))
    task = Task(torch.arange(len(labels)), labels[:0], tuple(labels.unique().tolist()))
    return Stream("lifelong", "gcil", data, (task,))


def _check_scale(plan: Plan, fit_std: bool) -> None:
    """Refuse images that cannot be normalised, or whose scale differs from that of the first task."""
    if fit_std and max(plan.settings["std"]) <= MIN_STD:
        raise UsageError("the first images are too similar to compute mean and std from: give both in settings")
    augment = Augment(0, False, plan.settings["mean"], plan.settings["std"])
    if (distance := _mean_distance(augment, plan.stream.data.train_images)) > MAX_DISTANCE:
        raise UsageError(
            f"these images are {distance:.0f} standard deviations from those learned first, on average: "
            "give them in the same scale (0 … 1 or 0 … 255), or start over with mean and std in settings"
        )


def _mean_distance(augment: Augment, images: Tensor) -> float:
    """Return the mean distance of pixels from the mean, in standard deviations, over at most 1000 images."""
    return float(augment.normalise(images[:1000].to(augment.mean.device)).abs().mean())


def _restore(learner: Learner, state: ClassifierState) -> None:
    """Put a new learner into the state in which the last one ended, at the start of a task."""
    fresh, _ = state_of(learner)
    tensors = {**state.tensors, "order": fresh["order"], "loss": fresh["loss"]}
    if state.device != learner.device.type:  # generators of another device do not fit
        tensors |= {k: t for k, t in fresh.items() if k.startswith("generator/")}
    position = {"task": 0, "epoch": 0, "batch": 0, "offered": state.offered, "curve": [], "scores": {"untrained": 0}}
    try:
        restore(learner, tensors, position)
        labels = tensors.get("memories/episodic/y")
        if labels is not None and not bool(((labels >= 0) & (labels < len(state.classes))).all()):
            raise ValueError("memories/episodic/y has labels of no class")
    except (LookupError, TypeError, ValueError, RuntimeError) as e:
        raise UsageError(f"the state of this classifier does not fit its settings ({e}): load another copy") from e
