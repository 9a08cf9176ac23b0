"""A classifier that goes on learning: from new labelled images whenever they come, without the earlier ones."""

import gc
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from scommer.data.dataset import Array, Layout
from scommer.device import choose_device, choose_precision
from scommer.errors import UsageError
from scommer.lifelong import learning, state
from scommer.lifelong.labels import Label, Labels, classes_of, extended, numbers
from scommer.lifelong.state import ClassifierState
from scommer.methods import METHODS, MemoryFactory
from scommer.runs import presets
from scommer.runs.experiment import Experiment, check
from scommer.runs.run import Watch


class NotLearned(UsageError, NotFittedError):  # type: ignore[misc]
    """A question to a classifier that has learned nothing yet."""


class LifelongClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns a task at each `partial_fit`: with the same settings, the same as `run` makes of all tasks at once.

    `classes` are the labels that may come, or how many (0, 1, 2, …); `add_classes` makes room for more. Settings that
    are left out follow the first images (mean, std, size of the network), their number (alpha) and the epochs (warmup),
    and stay: let the first task be a typical one, or give them. As everywhere, an epoch leaves out images that do not
    fill a batch, unless `drop_last` is off. `history_` tells what each task brought, `settings_` what it learns with.

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
        self._known: ClassifierState | None = None
        self._learning = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_learning": None}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_learning": threading.Lock()})

    def __sklearn_is_fitted__(self) -> bool:
        return self._known is not None

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels that may come, sorted, as everywhere in scikit-learn: the order of probabilities."""
        return np.sort(self._known.classes if self._known else np.array(classes_of(self.classes)))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Of each task: how many images, their least and greatest value, classes, loss of the last epoch, time."""
        return [dict(task) for task in self._known.history] if self._known else []

    @property
    def settings_(self) -> dict[str, Any]:
        """Every setting that it learns with."""
        return dict(self._now().settings)

    @property
    def form_(self) -> tuple[str, tuple[int, ...]]:
        """The kind of number and the shape (channels, height, width) of the images that it learns."""
        return self._now().form

    def _now(self) -> ClassifierState:
        if self._known is None:
            raise NotLearned("nothing has been learned yet: call partial_fit first")
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
        """Learns these images as one task; earlier ones are kept in memories by what was remembered of them.

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

    def _widened(self, known: ClassifierState, init: dict[str, Any]) -> ClassifierState:
        method, training = presets.resolve(
            presets.DEFAULT, init["method"], init["buffer"], init["variant"], known.settings
        )
        image = torch.zeros(known.form[1], dtype=getattr(torch, known.form[0]))
        factory = MemoryFactory(image, len(classes_of(init["classes"])), training, init["buffer"], init["seed"])
        return state.widened(known, init, factory.memories(method), choose_device(self.device))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._learning.acquire(blocking=False):
            raise UsageError("this classifier is learning already, in another thread: wait for it")
        try:
            yield
        finally:
            self._learning.release()

    def _unchanged(self, known: ClassifierState | None) -> dict[str, Any]:
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
                    self._known = learning.learned(
                        known, self._unchanged(known), images, labels, layout, self.device, self.precision,
                        watch or Watch(),
                    )  # fmt: skip
            finally:
                gc.collect()  # a learner and its step know each other, and hold the images
        return self

    # --- answering

    def predict_proba(self, images: Array, *, layout: Layout = "auto") -> NDArray[np.float32]:
        """The probability [N, C] of each class, in the order of `classes_`; 0 for those that have not come yet."""
        known = self._now()
        return learning.probabilities(known, images, layout)[:, known.classes.argsort()]

    def predict(self, images: Array, *, layout: Layout = "auto") -> NDArray[Any]:
        """The most likely label [N] of each image, among those that have come."""
        known = self._now()  # one and the same, whatever another thread does meanwhile
        labels: NDArray[Any] = known.classes[learning.probabilities(known, images, layout).argmax(1)]
        return labels

    def score(self, images: Array, labels: Labels, *, layout: Layout = "auto") -> float:
        """The share of images whose most likely label is the right one, from 0 to 1."""
        known = self._now()
        found = learning.probabilities(known, images, layout).argmax(1)
        return float((found == numbers(labels, len(found), known.classes)).mean())

    # --- from one process to another

    def save(self, path: Path | str) -> None:
        """Writes all of it, able to learn on, into one file: whole, or not at all."""
        state.write(Path(path).expanduser(), self._now())

    @classmethod
    def load(cls, path: Path | str, *, device: str | None = None, precision: str | None = None) -> Self:
        """The classifier in a file, on the device and with the precision named, or else what is usual there."""
        known = state.read(Path(path).expanduser(), choose_device(device))
        model = cls(**known.init, device=device, precision=precision)
        model._known = known
        return model
