"""A classifier that goes on learning: from new labelled images whenever they come, without the earlier ones."""

import gc
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scommer import checkpoint, presets, record as records
from scommer.data import Dataset
from scommer.data.dataset import Array, Layout, as_images
from scommer.device import choose_device, choose_precision, kept_memory
from scommer.errors import RunError, RunWarning, UsageError
from scommer.experiment import Experiment, check, prepare
from scommer.harvest import final_weights
from scommer.learner import Learner
from scommer.methods import METHODS
from scommer.streams import Stream, Task
from scommer.trained import Trained, trained
from scommer.underway import Watch

Label = int | str


class LifelongClassifier:
    """Learns a task at each `partial_fit`: the same as `run` makes of the same tasks given at once.

    `classes` are the labels that may ever come, or how many (0, 1, 2, …). Settings that are left out follow the
    first images and stay.

    >>> import numpy as np
    >>> dark, bright = np.zeros((64, 8, 8), np.uint8), np.full((64, 8, 8), 255, np.uint8)
    >>> model = LifelongClassifier(["night", "day"], "er", settings={"epochs": 2})
    >>> model.partial_fit(dark, ["night"] * 64).partial_fit(bright, ["day"] * 64).predict(bright[:2]).tolist()
    ['day', 'day']
    """

    def __init__(
        self,
        classes: int | Sequence[Label],
        method: str = "scommer",
        buffer: int = 200,
        seed: int = 0,
        variant: str = "official",
        settings: Mapping[str, Any] | None = None,
        *,
        device: str | None = None,
        precision: str | None = None,
    ) -> None:
        self.classes = _labels(classes)
        self.asked = Experiment(
            presets.DEFAULT, method, buffer, seed, variant, settings={} if settings is None else settings
        )
        check(self.asked)  # before there are any images
        if METHODS[method].joint:
            raise UsageError(f"{method} needs all tasks at once: give them to `run`, or take another method")
        self.device = choose_device(device)
        self.precision = choose_precision(precision, self.device)
        self.history: list[dict[str, Any]] = []  # what each task brought
        self._state: dict[str, Tensor] = {}  # all that training changes, and the generators
        self._trained_on = self.device.type
        self._offered = 0  # examples that episodic memory was offered
        self._form: tuple[str, tuple[int, ...]] | None = None  # of an image
        self._weights: dict[str, Tensor] = {}  # of the memory that answers
        self._answering: Trained | None = None

    def __repr__(self) -> str:
        seen = len({c for task in self.history for c in task["classes"]})
        return (
            f"LifelongClassifier({self.asked.method}, buffer {self.asked.buffer}: {len(self.history)} tasks learned, "
            f"{seen} of {len(self.classes)} classes)"
        )

    # --- learning

    def partial_fit(
        self, images: Array, labels: Array | Sequence[Label], *, layout: Layout = "auto", watch: Watch | None = None
    ) -> Self:
        """Learns these images as one task; earlier ones are kept in mind by what was remembered of them.

        Where it is broken off or fails, the classifier stays what it was before.
        """
        x = self._images(images, layout)
        y = torch.from_numpy(self._numbers(labels, len(x)))
        stream = self._stream(torch.from_numpy(x), y)
        plan = prepare(replace(self.asked, stream=stream))
        watch, began = watch or Watch(), time.monotonic()
        if self.device.type == "cuda":
            gc.collect()  # an earlier learner and its graphs may still hold GPU memory
        with kept_memory(self.device):
            learner = Learner(
                stream, plan.method, plan.training, buffer=self.asked.buffer, seed=self.asked.seed,
                device=self.device, precision=self.precision,
            )  # fmt: skip
            if self._state:
                self._take_up(learner)
            watch.begin(plan, learner, 1)
            try:
                for moment in learner.learn():
                    watch.moment(learner, moment)
            finally:
                watch.end()
            own = f"{plan.method.inference}."
            weights = {k.removeprefix(own): t for k, t in final_weights(learner).items() if k.startswith(own)}
        if not all(bool(t.isfinite().all()) for t in weights.values()):
            raise RunError(f"training went astray: lower the learning rate (now lr = {plan.training.lr})")
        answering = trained(plan.settings, stream.data.class_names, stream.data.image_shape, weights, self.device)
        told = {
            "images": len(y),
            "classes": [self.classes[c] for c in stream.tasks[0].classes],
            "loss": learner.curve[-1],
            "seconds": round(time.monotonic() - began, 2),
            "finished": records.now(),
        }
        tensors, values = learner.state()
        # From here on nothing can fail: all of it or nothing.
        self._state = {k: t.cpu() for k, t in tensors.items() if k.startswith(("mind/", "generator/"))}
        self._trained_on, self._offered = self.device.type, values["offered"]
        self._form, self._weights, self._answering = (str(x.dtype), x.shape[1:]), weights, answering
        self.asked = replace(self.asked, settings=plan.settings)
        self.history = [*self.history, told]
        return self

    def _stream(self, images: Tensor, labels: Tensor) -> Stream:
        """These images as a stream of one task without test images."""
        names = tuple(map(str, self.classes))
        data = Dataset("given", images, labels, images[:0], labels[:0], names)
        task = Task(torch.arange(len(labels)), labels[:0], tuple(labels.unique().tolist()))
        return Stream("lifelong", "gcil", data, (task,))

    def _take_up(self, learner: Learner) -> None:
        """Brings a new learner to where the last one ended, at the beginning of a task."""
        fresh, _ = learner.state()
        state = {**self._state, "order": fresh["order"], "loss": fresh["loss"]}
        if self._trained_on != learner.device.type:  # generators of another device cannot be taken up
            state |= {k: t for k, t in fresh.items() if k.startswith("generator/")}
        start = {"task": 0, "epoch": 0, "batch": 0, "offered": self._offered, "curve": [], "scores": {"untrained": 0}}
        learner.restore(state, start)

    # --- answering

    def predict_proba(self, images: Array, *, layout: Layout = "auto") -> NDArray[np.float32]:
        """The probability [N, C] of each class, in the order of `classes`."""
        if self._answering is None:
            raise UsageError("nothing has been learned yet: call partial_fit first")
        x = self._images(images, layout)
        found: NDArray[np.float32] = self._answering.logits(x, "NCHW").softmax(1).numpy()
        return found

    def predict(self, images: Array, *, layout: Layout = "auto") -> NDArray[Any]:
        """The most likely label [N] of each image."""
        labels: NDArray[Any] = np.take(self.classes, self.predict_proba(images, layout=layout).argmax(1))
        return labels

    def score(self, images: Array, labels: Array | Sequence[Label], *, layout: Layout = "auto") -> float:
        """The share of images whose most likely label is the right one, from 0 to 1."""
        found = self.predict_proba(images, layout=layout).argmax(1)
        return float((found == self._numbers(labels, len(found))).mean())

    # --- what is given

    def _images(self, images: Array, layout: Layout) -> NDArray[Any]:
        """Images as [N, C, H, W], in the form that was learned."""
        x = as_images(images, layout=layout)
        if self._form and self._form != (form := (str(x.dtype), x.shape[1:])):
            given, learned = (f"{d} {' × '.join(map(str, shape))}" for d, shape in (form, self._form))
            raise UsageError(f"these images are {given} (channels, height, width), those learned before are {learned}")
        return x

    def _numbers(self, labels: Array | Sequence[Label], length: int) -> NDArray[np.int64]:
        """The place of each label among the classes."""
        given = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
        if given.shape != (length,):
            raise UsageError(f"labels have shape {given.shape}, expected ({length},): pass one label per image")
        place = {c: i for i, c in enumerate(self.classes)}
        strange = next((c for c in given.tolist() if c not in place), None)
        if strange is not None:
            raise UsageError(
                f"label {strange!r} is none of the {len(place)} classes that were named at the start: mend the labels"
            )
        return np.array([place[c] for c in given.tolist()], np.int64)

    # --- from one process to another

    def save(self, folder: Path | str) -> None:
        """Writes all of it, able to learn on, into a folder; what was saved there before is kept beside it."""
        if not self.history or self._form is None:
            raise UsageError("nothing has been learned yet: call partial_fit first")
        asked = {name: getattr(self.asked, name) for name in ("method", "buffer", "seed", "variant", "settings")}
        values = {
            "lifelong": 1, "classes": list(self.classes), "asked": asked, "history": self.history,
            "offered": self._offered, "form": self._form, "device": self._trained_on,
            "code": records.code_identity(), "versions": records.versions(),
        }  # fmt: skip
        with checkpoint.locked(Path(folder)):
            checkpoint.save(Path(folder), {**self._state, **_named("answer/", self._weights)}, values)

    @classmethod
    def load(cls, folder: Path | str, *, device: str | None = None, precision: str | None = None) -> Self:
        """The classifier that was last saved into a folder, on this machine's device or the one named."""
        saved = checkpoint.load(Path(folder), lambda text: warnings.warn(text, RunWarning, stacklevel=4))
        if saved is None:
            raise UsageError(f"{folder} has no classifier that could be loaded: give the folder it was saved to")
        tensors, values = saved
        if values.get("lifelong") != 1:
            raise UsageError(f"{folder} has the checkpoint of something else: give the folder of a classifier")
        model = cls(values["classes"], **values["asked"], device=device, precision=precision)
        model._state = {k: t for k, t in tensors.items() if not k.startswith("answer/")}
        model._weights = {k.removeprefix("answer/"): t for k, t in tensors.items() if k.startswith("answer/")}
        model.history, model._offered, model._trained_on = values["history"], values["offered"], values["device"]
        dtype, shape = values["form"]
        model._form = (dtype, tuple(shape))
        model._answering = trained(
            model.asked.settings, [*map(str, model.classes)], shape, model._weights, model.device
        )
        return model


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": t for name, t in tensors.items()}


def _labels(classes: int | Sequence[Label]) -> tuple[Label, ...]:
    """The labels that may come, as plain values."""
    listed = list(range(int(classes))) if isinstance(classes, Integral) else np.asarray(classes).tolist()
    if not isinstance(listed, list) or not all(isinstance(c, int | str) for c in listed):
        raise UsageError(f"classes are {classes!r}: give their number, or a list of whole numbers or of words")
    if len(listed) < 2 or len(set(listed)) != len(listed):
        raise UsageError(f"classes are {classes!r}: give at least two, each once")
    return tuple(listed)
