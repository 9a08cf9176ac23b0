"""A classifier that learns new labelled data whenever it arrives, without the earlier data."""

import copy
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
from sklearn.metrics import accuracy_score
from torch import nn

from scommer.data.dataset import Layout, as_nchw
from scommer.device import choose_device, choose_precision, computing_on
from scommer.errors import UsageError
from scommer.files import expand_user, write_output
from scommer.lifelong import forgetting, learning
from scommer.lifelong.exporting import to_onnx
from scommer.lifelong.frozen import Features, refuse_other
from scommer.lifelong.inputs import InputForm, Inputs, read_inputs
from scommer.lifelong.labels import Label, Labels, extend_classes, parse_classes, plain_labels, with_new_labels
from scommer.lifelong.state import ClassifierState, load_state, must_fit, save_state
from scommer.lifelong.widening import widen
from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.runs.experiment import Experiment, check, usual_threads
from scommer.runs.progress import Watch
from scommer.runs.settings import setting_types

NESTED = "settings__"  # as scikit-learn names a parameter of a parameter


ROW, IMAGE = InputForm("float32", (1, 1, 1)), InputForm("float32", (1, 2, 2))


class NotLearned(UsageError, NotFittedError):  # type: ignore[misc]
    """Raised by a classifier that has not learned anything yet."""


class LifelongClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns one task with each `partial_fit`, and remembers the earlier ones.

    It takes rows of features [N, D], images [N, H, W] or [N, H, W, C], a list of Pillow images, or, with `features`,
    anything that a frozen network turns into rows: a module, which receives images [N, C, H, W] with values from 0 to
    1, or a function, which receives a slice of the input. Only its output is remembered.

    `classes` are the labels that may occur, or their number for the labels 0, 1, 2, …; without them, classes are added
    as they appear. The default method is `slda` for rows, with equally likely classes, and `scommer` for images.
    Settings that you leave out are chosen from the first task and then fixed: network, mean and std, and some of the
    method's own. Pass them if the first task is not typical. `n_tasks_` counts the tasks learned, and
    `history_` describes the newest 1000; `settings_` are the settings in use; `remembered_` is the content of episodic
    memory.

    >>> from sklearn.datasets import load_digits
    >>> images, labels = load_digits(return_X_y=True)
    >>> images = images.reshape(-1, 8, 8) / 16
    >>> model = LifelongClassifier(buffer=30, settings={"epochs": 5})
    >>> for some in (labels < 5, labels >= 5):
    ...     model = model.partial_fit(images[some], labels[some])
    >>> bool(model.score(images, labels) > 0.5)
    True
    """

    _state: ClassifierState | None = None

    def __init__(
        self,
        classes: int | Sequence[Label] | None = None,
        method: str | None = None,
        buffer: int = 200,
        seed: int = 0,
        variant: str | None = None,
        settings: Mapping[str, Any] | None = None,
        device: str | None = None,
        precision: str | None = None,
        features: Features | None = None,
    ) -> None:
        self.classes, self.method, self.buffer, self.seed = classes, method, buffer, seed
        self.variant, self.settings, self.device, self.precision = variant, settings, device, precision
        self.features = features
        self._check_params()  # before the user has prepared any data
        choose_precision(precision, choose_device(device))

    # --- as a scikit-learn estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters and, if `deep`, each of `settings` as `settings__NAME`."""
        params: dict[str, Any] = super().get_params(deep=False)
        settings = self.settings if deep and isinstance(self.settings, Mapping) else {}
        return {**params, **{f"{NESTED}{name}": value for name, value in settings.items()}}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor, and single settings as `settings__NAME`."""
        nested = {k.removeprefix(NESTED): params.pop(k) for k in list(params) if k.startswith(NESTED)}
        super().set_params(**params)
        if nested:
            self.settings = {**(self.settings or {}), **nested}
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_guard"}  # a lock cannot be copied

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels that may occur, sorted as everywhere in scikit-learn: the columns of `predict_proba`."""
        if self._state:
            return np.sort(self._state.classes)
        if self.classes is None:
            raise AttributeError("classes_ is unknown until something has been learned")
        return np.sort(np.array(parse_classes(self.classes)))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """For each of the newest 1000 tasks: number of inputs, their value range, classes, last epoch's loss, times."""
        return [dict(task) for task in self._state.history.newest] if self._state else []

    @property
    def n_tasks_(self) -> int:
        """The number of tasks learned."""
        return self._state.history.tasks if self._state else 0

    @property
    def seen_classes_(self) -> NDArray[Any]:
        """The labels that have occurred and were not forgotten since, sorted: those that `predict` may return."""
        state = self._learned_state()
        return np.sort(state.classes[state.seen])

    @property
    def settings_(self) -> dict[str, Any]:
        """All settings in use."""
        return dict(self._learned_state().settings)

    @property
    def method_(self) -> str:
        """The method in use."""
        return self._learned_state().method

    @property
    def form_(self) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape of an input: (channels, height, width), or (1, 1, D) for rows."""
        form = self._learned_state().form
        return form.dtype, form.shape

    @property
    def remembered_(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The content of episodic memory, also saved: rows [N, D] or images [N, C, H, W], and their labels."""
        state = self._learned_state()
        x, labels = forgetting.remembered(state)
        return (x[:, 0, 0] if state.form.is_row else x), labels

    def _learned_state(self) -> ClassifierState:
        if self._state is None:
            raise NotLearned("this classifier has not learned anything yet: call fit or partial_fit first")
        return self._state

    def _check_params(self) -> dict[str, Any]:
        """Return the constructor's parameters that determine what is learned, checked, as plain values."""
        classes, settings = self.classes, {} if self.settings is None else self.settings
        if classes is not None:
            listed = parse_classes(classes)
            classes = len(listed) if isinstance(classes, Integral) else listed
        if self.features is not None and not callable(self.features):
            raise UsageError(f"features is {self.features!r}: give a network or a function")
        # Without a method, settings must fit one of the default methods; the first task decides which.
        usual = {form: learning.usual_method(form) for form in (ROW, IMAGE)}
        method = self.method or usual[ROW if set(settings) & _own_settings(usual[ROW]) else IMAGE]
        experiment = Experiment(presets.DEFAULT, method, self.buffer, self.seed, self.variant or "", settings=settings)
        check(experiment)
        if METHODS[method].joint:
            raise UsageError(f"{self.method} learns all tasks at once: use `run`, or choose another method")
        return {
            "classes": classes, "method": self.method, "buffer": experiment.buffer, "seed": experiment.seed,
            "variant": self.variant,
            "settings": json.loads(json.dumps(dict(settings), default=lambda value: value.tolist())),
        }  # fmt: skip

    # --- learning

    def partial_fit(
        self,
        X: Any,
        y: Labels,
        classes: Sequence[Label] | None = None,
        *,
        layout: Layout = "auto",
        watch: Watch | None = None,
    ) -> Self:
        """Learn these rows or images as one task; `classes` lists all that may occur so far, as in scikit-learn.

        If learning fails or is interrupted, the classifier stays as it was before.
        """
        return self._learn(X, y, classes, layout, watch, start_over=False)

    def fit(self, X: Any, y: Labels, *, layout: Layout = "auto", watch: Watch | None = None) -> Self:
        """Learn these rows or images as the first task, and forget everything learned before."""
        return self._learn(X, y, None, layout, watch, start_over=True)

    def add_classes(self, classes: int | Sequence[Label]) -> Self:
        """Add classes, given by their labels, or by their number if the classes are numbered.

        Nothing learned is lost. Like all classes, new ones have probability 0 until they occur in a `partial_fit`.
        """
        with self._locked():
            params = self._check_unchanged(self._state)
            if params["classes"] is None:
                raise UsageError("classes are added as they appear: call partial_fit with the new labels")
            params["classes"] = extend_classes(params["classes"], classes)
            if self._state:
                with must_fit():
                    labels = parse_classes(params["classes"])
                    self._state = widen(self._state, params, labels, choose_device(self.device))
            self.classes = params["classes"]
        return self

    def forget(self, *, classes: Sequence[Label] | None = None, where: Any = None) -> Self:
        """Forget whole classes, or the inputs of `remembered_` that the mask `where` marks, and all copies of them.

        Their remembered inputs are removed; save again to remove them from a file. A forgotten class also loses its
        row of the last layer, its mean and its counts, and has probability 0 until it is learned again. The other
        weights, which all classes share, do not change: the class shaped them too, so it would be relearned faster
        than a new one. To remove every trace, train a new classifier. If no class is left, this one is as it was
        before its first task.
        """
        if (classes is None) == (where is None):
            raise UsageError("forget takes `classes` or `where`: give one of them")
        with self._locked():
            state = self._learned_state()
            if where is not None:
                self._state = forgetting.forget_inputs(state, np.asarray(where))
            else:
                listed = np.atleast_1d(np.asarray(classes, object)).tolist()
                gone = plain_labels(listed, len(listed))
                self._state = forgetting.forget_classes(state, gone, choose_device(self.device))
        return self

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.__dict__.setdefault("_guard", threading.Lock())
        if not lock.acquire(blocking=False):
            raise UsageError("this classifier is already learning in another thread: wait until it has finished")
        try:
            yield
        finally:
            lock.release()

    def _check_unchanged(self, state: ClassifierState | None) -> dict[str, Any]:
        """Return the constructor's parameters; refuse any that changed since the first task."""
        params = self._check_params()
        if state and (changed := [name for name in params if params[name] != state.params[name]]):
            raise UsageError(
                f"{', '.join(changed)} changed since the first task was learned: set it back, or start over with fit"
            )
        return params

    def _learn(
        self,
        given: Any,
        labels: Any,
        classes: Sequence[Label] | None,
        layout: Layout,
        watch: Watch | None,
        start_over: bool,
    ) -> Self:
        with self._locked(), torch.inference_mode(False), torch.enable_grad():
            state = None if start_over else self._state
            params = self._check_unchanged(state)
            checked = copy.copy(self)  # scikit-learn sets attributes while it checks
            if state is None:
                checked.__dict__.pop("feature_names_in_", None)
            inputs = read_inputs(given, layout, state.form if state else None, self.features, checked)
            y = plain_labels(labels, len(inputs.x))
            self._state = learning.learn_task(
                state, params, inputs, y, self._all_classes(state, y, classes), self.device, self.precision,
                watch or Watch(),
            )  # fmt: skip
            self._show_features()
        return self

    def _all_classes(
        self, state: ClassifierState | None, labels: Sequence[Label], announced: Sequence[Label] | None
    ) -> Sequence[Label]:
        """Return the classes in the order of the network's outputs, new ones last."""
        if self.classes is not None:
            return parse_classes(self.classes)
        known = state.labels if state else ()
        if announced is None:
            return with_new_labels(known, labels)
        expected = parse_classes(announced, fewest=1)
        if unknown := sorted(set(labels) - set(expected), key=str):
            raise UsageError(
                f"y contains {unknown[0]!r}, which is not one of `classes`: add it there, or leave them out"
            )
        return with_new_labels(known, expected)

    def _show_features(self) -> None:
        """Set the attributes that scikit-learn expects of an estimator fitted to rows."""
        form = self._learned_state().form
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if form.is_row and form.features is None:
            self.n_features_in_ = form.shape[2]
        if form.feature_names:
            self.feature_names_in_ = np.array(form.feature_names, object)

    # --- prediction

    def _probabilities(self, given: Any, layout: Layout) -> tuple[ClassifierState, NDArray[np.float32]]:
        state = self._learned_state()  # read once: another thread may replace it
        inputs: Inputs = read_inputs(given, layout, state.form, self.features, self)
        device = choose_device(self.device)
        threads = usual_threads(state.settings["network"], state.form.shape)
        precision = choose_precision(self.precision, device)
        with computing_on(device, precision, keep_memory=False, threads=threads):
            return state, learning.probabilities(state, inputs)

    def predict_proba(self, X: Any, *, layout: Layout = "auto") -> NDArray[np.float32]:
        """Return the probability [N, C] of each class in `classes_`; 0 for classes that have not occurred yet."""
        state, p = self._probabilities(X, layout)
        return p[:, state.classes.argsort()]

    def predict_log_proba(self, X: Any, *, layout: Layout = "auto") -> NDArray[np.float32]:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithm: NDArray[np.float32] = np.log(self.predict_proba(X, layout=layout))
        return logarithm

    def predict(self, X: Any, *, layout: Layout = "auto") -> NDArray[Any]:
        """Return the most likely label [N] of each row or image, among the classes that have occurred."""
        state, p = self._probabilities(X, layout)
        labels: NDArray[Any] = state.classes[p.argmax(1)]
        return labels

    def score(self, X: Any, y: Labels, sample_weight: Any = None, *, layout: Layout = "auto") -> float:
        """Return the accuracy, from 0 to 1."""
        found = self.predict(X, layout=layout)
        labels = plain_labels(y, len(found))
        if strange := {type(label).__name__ for label in labels} - {type(c).__name__ for c in found.tolist()}:
            raise UsageError(f"y has labels of type {strange.pop()}, unlike the classes: give labels of the same type")
        right = [a == b and type(a) is type(b) for a, b in zip(found.tolist(), labels, strict=True)]
        return float(accuracy_score(np.ones(len(right)), right, sample_weight=sample_weight))

    # --- files

    def save(self, path: Path | str) -> None:
        """Write everything needed to predict and to keep learning to one file, completely or not at all.

        The file contains the remembered inputs (`remembered_`): protect it like the data they come from.
        """
        save_state(expand_user(path), self._learned_state())

    def export(self, path: Path | str, *, example: Any = None) -> None:
        """Write `to_onnx` to a file, completely or not at all."""
        write_output(expand_user(path), self.to_onnx(example=example))

    def to_onnx(self, *, example: Any = None) -> bytes:
        """Return an ONNX model that maps raw rows or images to probabilities, for batches of any size.

        Images have the layout [N, C, H, W]. If `features` is a module, pass one of its images as `example`; the model
        then contains the frozen network too. Its metadata lists the classes, in the order of `classes_`.
        """
        state = self._learned_state()
        if not isinstance(self.features, nn.Module):
            return to_onnx(state)
        if example is None:
            raise UsageError("the size of images for `features` is not known: give one of them as `example`")
        refuse_other(self.features, state.form.features, state.form.probe, self.device)
        return to_onnx(state, self.features, torch.from_numpy(as_nchw(np.asarray(example)[None])))

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        device: str | None = None,
        precision: str | None = None,
        features: Features | None = None,
    ) -> Self:
        """Read a classifier from a file; device and precision are chosen as for a new one.

        `features` are not in the file: pass those that it learned with.
        """
        where = choose_device(device)
        choose_precision(precision, where)
        state = load_state(expand_user(path), where)
        try:
            model = cls(**state.params, device=device, precision=precision, features=features)
        except (TypeError, UsageError) as e:
            raise UsageError(f"{path} has invalid parameters ({e}): load another copy") from e
        model._state = state
        model._show_features()
        return model


def _own_settings(method: str) -> set[str]:
    """Return the settings that only this method has, and not training."""
    return set(setting_types(METHODS[method])) - set(setting_types(Training))
