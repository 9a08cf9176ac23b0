"""A classifier that learns new labelled images whenever they arrive, without the earlier ones."""

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
from scommer.device import choose_device, choose_precision, computing_on
from scommer.errors import UsageError
from scommer.files import expand_user
from scommer.lifelong import learning
from scommer.lifelong.labels import Label, Labels, encode_labels, extend_classes, parse_classes
from scommer.lifelong.state import ClassifierState, load_state, save_state
from scommer.lifelong.widening import widen
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.experiment import Experiment, check
from scommer.runs.progress import Watch


class NotLearned(UsageError, NotFittedError):  # type: ignore[misc]
    """Raised by a classifier that has not learned anything yet."""


class LifelongClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns one task with each `partial_fit`, and remembers the earlier ones.

    With the same settings it learns exactly what `run` learns from the same tasks.

    `classes` are the labels that may occur, or their number for the labels 0, 1, 2, …; `add_classes` adds more later.
    Settings that you leave out are fitted to the first task and then stay: network, mean and std to its images, and
    some of the method's own to the number of steps. Give them if the first task is not typical. An epoch skips images
    that do not fill a batch, unless `drop_last` is off. `history_` describes each task learned; `settings_` are the
    settings in use.

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
        self._check_params()  # before the user has prepared any images
        choose_precision(precision, choose_device(device))
        self._state: ClassifierState | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_lock": None}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_lock": threading.Lock()})

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels that may occur, sorted as everywhere in scikit-learn: the columns of `predict_proba`."""
        return np.sort(self._state.classes if self._state else np.array(parse_classes(self.classes)))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """For each task: number of images, their value range, classes, loss of the last epoch, and times."""
        return [dict(task) for task in self._state.history] if self._state else []

    @property
    def settings_(self) -> dict[str, Any]:
        """All settings in use."""
        return dict(self._learned_state().settings)

    @property
    def form_(self) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape (channels, height, width) of the images."""
        return self._learned_state().input_form

    def _learned_state(self) -> ClassifierState:
        if self._state is None:
            raise NotLearned("this classifier has not learned anything yet: call partial_fit first")
        return self._state

    def _check_params(self) -> dict[str, Any]:
        """Return the constructor's parameters that determine what is learned, checked, as plain values."""
        classes, settings = parse_classes(self.classes), {} if self.settings is None else self.settings
        experiment = Experiment(presets.DEFAULT, self.method, self.buffer, self.seed, self.variant, settings=settings)
        check(experiment)
        if METHODS[self.method].joint:
            raise UsageError(f"{self.method} learns all tasks at once: use `run`, or choose another method")
        return {
            "classes": len(classes) if isinstance(self.classes, Integral) else classes,
            "method": experiment.method, "buffer": experiment.buffer, "seed": experiment.seed,
            "variant": experiment.variant,
            "settings": json.loads(json.dumps(dict(settings), default=lambda value: value.tolist())),
        }  # fmt: skip

    # --- learning

    def partial_fit(
        self, images: Array, labels: Labels, *, layout: Layout = "auto", watch: Watch | None = None
    ) -> Self:
        """Learn these images as one task.

        If learning fails or is interrupted, the classifier stays as it was before.
        """
        return self._learn(images, labels, layout, watch, start_over=False)

    def fit(self, images: Array, labels: Labels, *, layout: Layout = "auto", watch: Watch | None = None) -> Self:
        """Learn these images as the first task, and forget everything learned before."""
        return self._learn(images, labels, layout, watch, start_over=True)

    def add_classes(self, classes: int | Sequence[Label]) -> Self:
        """Add classes, given by their labels, or by their number if the classes are numbered.

        What was learned stays. Like all classes, new ones have probability 0 until they occur in a `partial_fit`.
        """
        with self._locked():
            params = self._check_unchanged(self._state)
            params["classes"] = extend_classes(params["classes"], classes)
            if self._state:
                self._state = widen(self._state, params, choose_device(self.device))
            self.classes = params["classes"]
        return self

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise UsageError("this classifier is already learning in another thread: wait until it has finished")
        try:
            yield
        finally:
            self._lock.release()

    def _check_unchanged(self, state: ClassifierState | None) -> dict[str, Any]:
        """Return the constructor's parameters; refuse any that changed since the first task."""
        params = self._check_params()
        if state and (changed := [name for name in params if params[name] != state.params[name]]):
            raise UsageError(
                f"{', '.join(changed)} changed since the first task was learned: set it back, or start over with fit"
            )
        return params

    def _learn(self, images: Array, labels: Labels, layout: Layout, watch: Watch | None, start_over: bool) -> Self:
        with self._locked():
            try:
                with torch.inference_mode(False), torch.enable_grad():
                    state = None if start_over else self._state
                    self._state = learning.learn_task(
                        state, self._check_unchanged(state), images, labels, layout, self.device, self.precision,
                        watch or Watch(),
                    )  # fmt: skip
            finally:
                gc.collect()  # a learner and its captured step refer to each other, and hold the images
        return self

    # --- prediction

    def _probabilities(self, state: ClassifierState, images: Array, layout: Layout) -> NDArray[np.float32]:
        device = choose_device(self.device)
        with computing_on(device, choose_precision(self.precision, device), keep_memory=False):
            return learning.probabilities(state, images, layout)

    def predict_proba(self, images: Array, *, layout: Layout = "auto") -> NDArray[np.float32]:
        """Return the probability [N, C] of each class in `classes_`; 0 for classes that have not occurred yet."""
        state = self._learned_state()
        return self._probabilities(state, images, layout)[:, state.classes.argsort()]

    def predict(self, images: Array, *, layout: Layout = "auto") -> NDArray[Any]:
        """Return the most likely label [N] of each image, among the classes that have occurred."""
        state = self._learned_state()  # read once: another thread may replace it
        labels: NDArray[Any] = state.classes[self._probabilities(state, images, layout).argmax(1)]
        return labels

    def score(self, images: Array, labels: Labels, *, layout: Layout = "auto") -> float:
        """Return the accuracy, from 0 to 1."""
        state = self._learned_state()
        found = self._probabilities(state, images, layout).argmax(1)
        return float((found == encode_labels(labels, len(found), state.classes)).mean())

    # --- files

    def save(self, path: Path | str) -> None:
        """Write everything needed to predict and to keep learning to one file, completely or not at all."""
        save_state(expand_user(path), self._learned_state())

    @classmethod
    def load(cls, path: Path | str, *, device: str | None = None, precision: str | None = None) -> Self:
        """Read a classifier from a file; device and precision are chosen as for a new one."""
        state = load_state(expand_user(path), choose_device(device))
        model = cls(**state.params, device=device, precision=precision)
        model._state = state
        return model
