"""How a classifier learns a task, and what it predicts."""

import time
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scommer import provenance
from scommer.data import Dataset
from scommer.device import choose_device, choose_precision, computing_on
from scommer.engine.augment import Augment
from scommer.engine.learner import Learner
from scommer.engine.state import restore, state_of
from scommer.errors import RunError, RunWarning, UsageError
from scommer.lifelong.history import History
from scommer.lifelong.inputs import InputForm, Inputs
from scommer.lifelong.labels import Label, encode_labels
from scommer.lifelong.state import ClassifierState, must_fit
from scommer.lifelong.widening import widen
from scommer.runs.experiment import MIN_STD, Experiment, Plan, prepare
from scommer.runs.progress import Watch
from scommer.runs.recording import final_weights
from scommer.runs.trained import trained, with_prefix
from scommer.streams import Stream, Task

MAX_DISTANCE = 20.0  # mean distance of images from those of the first task, in standard deviations
MAX_LOGIT = 1e6  # larger ones mean that training diverged
FEW = 20  # inputs of a class that was known before, which tell little
SELDOM = 0.1  # share of a class's inputs that are predicted right, below which it counts as not learned
_SCALES = {"images": " (0 … 1 or 0 … 255)", "rows": ""}


def learn_task(
    state: ClassifierState | None,
    params: dict[str, Any],
    inputs: Inputs,
    labels: Sequence[Label],
    classes: Sequence[Label],
    device: str | None,
    precision: str | None,
    watch: Watch,
) -> ClassifierState:
    """Return the state after learning these inputs as one task; `params` are those of the constructor."""
    began, where = time.monotonic(), choose_device(device)
    if state and len(classes) > len(state.labels):
        state = widen(state, params, classes, where)
    x, noun = inputs.x, inputs.form.noun
    y = torch.from_numpy(encode_labels(labels, classes))
    stream = _single_task_stream(torch.from_numpy(x), y, classes)
    method = state.method if state else params["method"] or usual_method(inputs.form)
    variant = state.variant if state else params["variant"] or ""
    settings = state.settings if state else params["settings"]
    experiment = Experiment(stream, method, params["buffer"], params["seed"], variant, settings=settings)
    plan = prepare(experiment)
    _check_scale(plan, noun, state is None and "std" not in params["settings"], watch)
    for hint in plan.slow_on(where):
        watch.warn(hint)
    chosen_precision = choose_precision(precision, where)
    with computing_on(where, chosen_precision, threads=plan.threads):
        learner = Learner(
            stream, plan.method, plan.training, buffer=experiment.buffer, seed=experiment.seed, device=where,
            precision=chosen_precision, earlier=state.history.tasks if state else 0,
            known=np.flatnonzero(state.seen).tolist() if state else (),
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
            advice = f"lower the learning rate (now lr = {plan.training.lr}), or " if plan.method.descends else ""
            raise RunError(f"training diverged: {advice}check the {noun} for extreme values")
    if trouble := learner.divergence():
        watch.warn(trouble)
    learner.release()
    task = {
        "images": len(y), "range": [float(x.min()), float(x.max())],
        "classes": [classes[c] for c in stream.tasks[0].classes],
        "loss": learner.curve[-1], "seconds": round(max(0.0, time.monotonic() - began), 2),
        "finished": provenance.now(),
    }  # fmt: skip
    history = state.history if state else History()
    learned = ClassifierState(
        tensors={k: t.cpu() for k, t in tensors.items() if k.startswith(("memories/", "generator/"))},
        weights=memories[plan.method.inference],
        network=networks[plan.method.inference],
        settings=plan.settings,
        method=experiment.method,
        variant=experiment.variant,
        form=inputs.form,
        labels=tuple(classes),
        offered=values["offered"],
        device=where.type,
        params=params,
        history=history.with_task(task),
    )
    if missed := _hardly_predicted(learned, history.classes, stream.data.train_images, y):
        more = "more of them, more epochs or a larger buffer" if plan.method.descends else "more of them"
        names = ", ".join(map(repr, missed))
        watch.warn(f"hardly any of the {noun} just learned of class {names} are predicted correctly: give {more}")
    return learned


def usual_method(form: InputForm) -> str:
    """Return the default method for inputs of this form: the one that did best on features or on images."""
    return "slda" if form.is_row else "scommer"


def _hardly_predicted(state: ClassifierState, before: Collection[Label], images: Tensor, y: Tensor) -> list[Label]:
    """Return the classes whose inputs are hardly ever predicted correctly, judged by at most 100 inputs each.

    Of classes known `before`, a few inputs tell little.
    """
    found = []
    for c in y.unique().tolist():
        which = (y == c).nonzero().flatten()[:100]
        if state.labels[c] in before and len(which) < FEW:
            continue
        if float((_masked_logits(state, images[which]).argmax(1) == c).float().mean()) < SELDOM:
            found.append(state.labels[c])
    return found


def probabilities(state: ClassifierState, inputs: Inputs) -> NDArray[np.float32]:
    """Return the probability [N, C] of each class, 0 for classes that have not occurred yet."""
    x = torch.from_numpy(inputs.x)
    if (distance := _mean_distance(state.network.augment, x)) > MAX_DISTANCE:
        noun = state.form.noun
        warnings.warn(
            f"these {noun} are {distance:.0f} standard deviations from those learned, on average: "
            f"check that they have the same scale{_SCALES[noun]}",
            RunWarning,
            stacklevel=5,
        )
    found: NDArray[np.float32] = _masked_logits(state, x).softmax(1).numpy()
    return found


def _masked_logits(state: ClassifierState, x: Tensor) -> Tensor:
    """Return the logits [N, C], -inf for classes that have not occurred yet."""
    logits = state.network.respond(x)
    if not bool(logits.isfinite().all()):
        raise UsageError("this classifier's outputs are not finite: load another copy")
    return logits.masked_fill(torch.from_numpy(~state.seen), -torch.inf)


def _single_task_stream(images: Tensor, labels: Tensor, classes: Sequence[Label]) -> Stream:
    """Return a stream of one task, without test images."""
    data = Dataset("given", images, labels, images[:0], labels[:0], tuple(map(str, classes)))
    task = Task(torch.arange(len(labels)), labels[:0], tuple(labels.unique().tolist()))
    return Stream("lifelong", "gcil", data, (task,))


def _check_scale(plan: Plan, noun: str, fit_std: bool, watch: Watch) -> None:
    """Refuse inputs that cannot be normalised, or whose scale differs from that of the first task.

    Methods without gradients have no scale of their own: a warning is enough.
    """
    data, settings = plan.stream.data, plan.settings
    if fit_std and noun == "images" and max(settings["std"]) <= MIN_STD:
        raise UsageError("the first images are too similar to compute mean and std from: give both in settings")
    augment = Augment(0, False, settings["mean"], settings["std"], channels=data.image_shape[0])
    if (distance := _mean_distance(augment, data.train_images)) > MAX_DISTANCE:
        far = f"these {noun} are {distance:.0f} standard deviations from those learned first, on average: "
        if plan.method.descends:
            raise UsageError(
                f"{far}give them in the same scale{_SCALES[noun]}, or start over with mean and std in settings"
            )
        watch.warn(f"{far}check that they have the same scale{_SCALES[noun]}")


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
    with must_fit():
        restore(learner, tensors, position)
