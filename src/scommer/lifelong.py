"""A classifier that goes on learning: from new labelled images whenever they come, without the earlier ones."""

import gc
import json
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from scommer import knowledge, presets, record as records
from scommer.augment import Augment
from scommer.data import Dataset
from scommer.data.dataset import Array, Layout, as_images
from scommer.device import choose_device, choose_precision, kept_memory
from scommer.errors import RunError, RunWarning, UsageError
from scommer.experiment import FLAT, Experiment, Plan, check, prepare
from scommer.harvest import final_weights
from scommer.knowledge import Knowledge
from scommer.labels import Label, Labels, classes_of, extended, numbers
from scommer.learner import Learner
from scommer.methods import METHODS, Workshop
from scommer.streams import Stream, Task
from scommer.trained import trained, under
from scommer.underway import Watch

FAR = 20.0  # standard deviations between the images learned first and others of another form, on average
ASTRAY = 1e6  # logits beyond it


class LifelongClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns a task at each `partial_fit`: with the same settings, the same as `run` makes of all tasks at once.

    `classes` are the labels that may come, or how many (0, 1, 2, …); `add_classes` makes room for more. Settings that
    are left out follow the first images (mean, std, size of the network) and their number (warmup, alpha) and stay:
    let the first task be a typical one, or give them. As everywhere, an epoch leaves out images that do not fill a
    batch, unless `drop_last` is off. `history_` tells what each task brought, `settings_` what it is learned with.

    >>> from sklearn.datasets import load_digits
    >>> images, labels = load_digits(return_X_y=True)
    >>> images = images.reshape(-1, 8, 8) / 16
    >>> model = LifelongClassifier(10, buffer=30, settings={"epochs": 5})
    >>> for some in (labels < 5, labels >= 5):
    ...     model = model.partial_fit(images[some], labels[some])
    >>> bool(model.score(images, labels) > 0.5)
    True
    """

    def __init__(
        self,
        classes: int | Sequence[Label],
        method: str = "scommer",
        buffer: int = 200,
        seed: int = 0,
        variant: str = "official",
        settings: Mapping[str, Any] | None = None,
        device: str | None = None,
        precision: str | None = None,
    ) -> None:
        self.classes, self.method, self.buffer, self.seed = classes, method, buffer, seed
        self.variant, self.settings, self.device, self.precision = variant, settings, device, precision
        self._init()  # what is wrong is told before there are any images
        choose_precision(precision, choose_device(device))
        self._known: Knowledge | None = None
        self._learning = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_learning": None}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_learning": threading.Lock()})

    def __sklearn_is_fitted__(self) -> bool:
        return self._known is not None

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels that may come, in the order of probabilities."""
        return self._known.classes.copy() if self._known else np.array(classes_of(self.classes))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Images, classes, loss of the last epoch, seconds and end of each task."""
        return [dict(task) for task in self._known.history] if self._known else []

    @property
    def settings_(self) -> dict[str, Any]:
        """Every setting that it learns with."""
        return dict(self._now().settings)

    @property
    def form_(self) -> tuple[str, tuple[int, ...]]:
        """The kind of number and the shape (channels, height, width) of the images that it learns."""
        return self._now().form

    def _now(self) -> Knowledge:
        if self._known is None:
            raise UsageError("nothing has been learned yet: call partial_fit first")
        return self._known

    def _init(self) -> dict[str, Any]:
        """What it was made with, checked, as plain values."""
        listed, settings = classes_of(self.classes), {} if self.settings is None else self.settings
        asked = Experiment(presets.DEFAULT, self.method, self.buffer, self.seed, self.variant, settings=settings)
        check(asked)
        if METHODS[self.method].joint:
            raise UsageError(f"{self.method} needs all tasks at once: give them to `run`, or take another method")
        return {
            "classes": len(listed) if isinstance(self.classes, Integral) else listed,
            "method": asked.method, "buffer": asked.buffer, "seed": asked.seed, "variant": asked.variant,
            "settings": json.loads(json.dumps(dict(settings), default=lambda value: value.tolist())),
        }  # fmt: skip

    # --- learning

    def partial_fit(
        self, images: Array, labels: Labels, *, layout: Layout = "auto", watch: Watch | None = None
    ) -> Self:
        """Learns these images as one task; earlier ones are kept in mind by what was remembered of them.

        Where it is broken off or fails, the classifier stays what it was before.
        """
        return self._learn(images, labels, layout, watch, anew=False)

    def fit(self, images: Array, labels: Labels, *, layout: Layout = "auto", watch: Watch | None = None) -> Self:
        """Learns these images as the first task, then forgets all that it knew before."""
        return self._learn(images, labels, layout, watch, anew=True)

    def add_classes(self, classes: int | Sequence[Label]) -> Self:
        """Makes room for more classes: their labels, or how many where they are numbered. What was learned stays.

        Until they come in a `partial_fit` they have a probability of 0, as any class that has not come yet.
        """
        with self._alone():
            init = self._unchanged(self._known)
            more = extended(init["classes"], classes)
            if self._known:
                self._known = self._widened(self._known, {**init, "classes": more})
            self.classes = more
        return self

    def _widened(self, known: Knowledge, init: dict[str, Any]) -> Knowledge:
        method, training = presets.resolve(
            presets.DEFAULT, init["method"], init["buffer"], init["variant"], known.settings
        )
        image = torch.zeros(known.form[1], dtype=getattr(torch, known.form[0]))
        fresh = method.mind(Workshop(image, len(classes_of(init["classes"])), training, init["buffer"], init["seed"]))
        return knowledge.widened(known, init, fresh, choose_device(self.device))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._learning.acquire(blocking=False):
            raise UsageError("this classifier is learning already, in another thread: wait for it")
        try:
            yield
        finally:
            self._learning.release()

    def _unchanged(self, known: Knowledge | None) -> dict[str, Any]:
        """What it was made with, as it was when it began to learn."""
        init = self._init()
        if known and (changed := [name for name in init if init[name] != known.init[name]]):
            raise UsageError(
                f"{', '.join(changed)} changed since the first task was learned: set it back, or begin anew with fit"
            )
        return init

    def _learn(self, images: Array, labels: Labels, layout: Layout, watch: Watch | None, anew: bool) -> Self:
        with self._alone():
            try:
                with torch.inference_mode(False), torch.enable_grad():
                    known = None if anew else self._known
                    self._known = self._learned(known, images, labels, layout, watch or Watch())
            finally:
                gc.collect()  # a learner and its step know each other, and hold the images
        return self

    def _learned(
        self, known: Knowledge | None, images: Array, labels: Labels, layout: Layout, watch: Watch
    ) -> Knowledge:
        """What is known once these images are learned too."""
        began, init = time.monotonic(), self._unchanged(known)
        classes = np.array(classes_of(init["classes"]))
        x = _images(images, layout, known)
        y = torch.from_numpy(numbers(labels, len(x), classes))
        stream = _one_task(torch.from_numpy(x), y, classes)
        given = {name: init[name] for name in ("method", "buffer", "seed", "variant")}
        asked = Experiment(stream, **given, settings=known.settings if known else init["settings"])
        plan = prepare(asked)
        _check_images(plan, first=known is None and "std" not in init["settings"])
        device = choose_device(self.device)
        with kept_memory(device):
            learner = Learner(
                stream, plan.method, plan.training, buffer=asked.buffer, seed=asked.seed, device=device,
                precision=choose_precision(self.precision, device), earlier=len(known.history) if known else 0,
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
            name: trained(plan.settings, stream.data.class_names, x.shape[1:], tensors, device)
            for name, tensors in memories.items()
        }
        for network in networks.values():
            if not bool((network.respond(stream.data.train_images[:32]).abs() < ASTRAY).all()):  # nor NaN
                raise RunError(
                    f"training went astray: lower the learning rate (now lr = {plan.training.lr}), or check the images"
                )
        if trouble := learner.astray():
            watch.warn(trouble)
        told = {
            "images": len(y), "classes": classes[list(stream.tasks[0].classes)].tolist(),
            "loss": learner.curve[-1], "seconds": round(time.monotonic() - began, 2), "finished": records.now(),
        }  # fmt: skip
        return Knowledge(
            state={k: t.cpu() for k, t in state.items() if k.startswith(("mind/", "generator/"))},
            weights=memories[plan.method.inference],
            answering=networks[plan.method.inference],
            settings=plan.settings,
            form=(str(x.dtype), x.shape[1:]),
            offered=values["offered"],
            device=device.type,
            init=init,
            history=(*(known.history if known else ()), told),
        )

    # --- answering

    def predict_proba(self, images: Array, *, layout: Layout = "auto") -> NDArray[np.float32]:
        """The probability [N, C] of each class, in the order of `classes_`; 0 for those that have not come yet."""
        return _probabilities(self._now(), images, layout)

    def predict(self, images: Array, *, layout: Layout = "auto") -> NDArray[Any]:
        """The most likely label [N] of each image, among those that have come."""
        known = self._now()  # one and the same, whatever another thread does meanwhile
        labels: NDArray[Any] = known.classes[_probabilities(known, images, layout).argmax(1)]
        return labels

    def score(self, images: Array, labels: Labels, *, layout: Layout = "auto") -> float:
        """The share of images whose most likely label is the right one, from 0 to 1."""
        known = self._now()
        found = _probabilities(known, images, layout).argmax(1)
        return float((found == numbers(labels, len(found), known.classes)).mean())

    # --- from one process to another

    def save(self, path: Path | str) -> None:
        """Writes all of it, able to learn on, into one file: whole, or not at all."""
        knowledge.write(Path(path).expanduser(), self._now())

    @classmethod
    def load(cls, path: Path | str, *, device: str | None = None, precision: str | None = None) -> Self:
        """The classifier in a file, on the device and with the precision named, or else what is usual there."""
        known = knowledge.read(Path(path).expanduser(), choose_device(device))
        model = cls(**known.init, device=device, precision=precision)
        model._known = known
        return model


def _images(images: Array, layout: Layout, known: Knowledge | None) -> NDArray[Any]:
    """Images as [N, C, H, W], in the form that was learned."""
    x = as_images(images, layout=layout)
    form = (str(x.dtype), x.shape[1:])
    if known and known.form != form:
        given, learned = (f"{d} {' × '.join(map(str, shape))}" for d, shape in (form, known.form))
        raise UsageError(f"these images are {given} (channels, height, width), those learned before are {learned}")
    return x


def _probabilities(known: Knowledge, images: Array, layout: Layout) -> NDArray[np.float32]:
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


def _one_task(images: Tensor, labels: Tensor, classes: NDArray[Any]) -> Stream:
    """Images as a stream of one task, without test images."""
    data = Dataset("given", images, labels, images[:0], labels[:0], tuple(map(str, classes)))
    task = Task(torch.arange(len(labels)), labels[:0], tuple(labels.unique().tolist()))
    return Stream("lifelong", "gcil", data, (task,))


def _check_images(plan: Plan, first: bool) -> None:
    """Refuses images that cannot be normalised, or are of another scale than those before."""
    if first and min(plan.settings["std"]) <= FLAT:
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


def _take_up(learner: Learner, known: Knowledge) -> None:
    """Brings a new learner to where the last one ended, at the beginning of a task."""
    fresh, _ = learner.state()
    state = {**known.state, "order": fresh["order"], "loss": fresh["loss"]}
    if known.device != learner.device.type:  # generators of another device cannot be taken up
        state |= {k: t for k, t in fresh.items() if k.startswith("generator/")}
    start = {"task": 0, "epoch": 0, "batch": 0, "offered": known.offered, "curve": [], "scores": {"untrained": 0}}
    learner.restore(state, start)
