"""An experiment, and the complete plan that it becomes before anything is computed."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import inf, prod
from numbers import Integral
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from scommer import streams
from scommer.data.dataset import is_row
from scommer.errors import UsageError, check_name, lookup
from scommer.methods import METHODS, Method
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.runs.settings import as_dict, setting_types
from scommer.streams import Stream

FITTED = ("network", "mean", "std", "lr")  # of every method, if a stream has no presets
SAFE_LR = 0.03  # the most for ResNet-18: with 0.1, a few images of two classes may diverge
ADDED = {  # settings that early records lack: with these values, which are what was done then, a run keeps its name
    "balanced": False, "horizon": 0.0, "recent": 0.0, "balance": 0.0, "teach": 0.0, "teacher": "long_term",
    "min_steps": 0, "fill": False, "turned": 0.0, "mirrored": False,
}  # fmt: skip
REMOVED = {"jitter": 0.0, "cutout": 0}  # settings that some records and files have: with these values, they did nothing
SMALL_NETWORKS = ("linear", "mlp", "small")
SMALL_INPUT = 1024  # values
MIN_STD = 1e-3  # the smallest standard deviation that images are divided by
CONSTANT = 1e-6  # relative deviation up to which a feature is constant but for rounding


@dataclass(frozen=True)
class Experiment:
    """One cell of a table: a stream, a method, a buffer, a seed.

    `stream` is a name in `scommer list` or your own Stream; `settings` override the presets.
    """

    stream: str | Stream
    method: str = "scommer"
    buffer: int = 200
    seed: int = 0
    variant: str = ""  # empty: `plus` for your own data, `official` for streams with presets
    validation: float = 0.0  # fraction of the training images to score on, instead of the test images
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.stream, str | Stream):
            raise UsageError(f"stream is a {type(self.stream).__name__}: give a name in `scommer list`, or a Stream")
        if not isinstance(self.method, str):
            raise UsageError(f"method is a {type(self.method).__name__}: give a name in `scommer list`")
        if not isinstance(self.settings, Mapping):
            raise UsageError(f"settings are a {type(self.settings).__name__}: give a dictionary, such as {{'lr': 0.1}}")
        if self.variant:
            check_name("variant", self.variant, presets.presets()["variant"])
        if not self.variant or not presets.has_variants(self.method):
            object.__setattr__(self, "variant", presets.usual_variant(self._preset_name))
        for name in ("buffer", "seed"):
            value = getattr(self, name)
            if not isinstance(value, Integral):
                raise UsageError(f"{name} = {value!r} is invalid: expected a whole number")
            object.__setattr__(self, name, int(value))  # NumPy's integers are not JSON
        try:
            object.__setattr__(self, "validation", float(self.validation))
        except (TypeError, ValueError):
            raise UsageError(f"validation = {self.validation!r} is invalid: expected a number") from None
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed = {self.seed} is invalid: expected 0 or more")

    @property
    def _preset_name(self) -> str:
        return self.stream if isinstance(self.stream, str) else presets.DEFAULT


@dataclass(frozen=True)
class Plan:
    """An experiment with its stream, its method and all settings."""

    experiment: Experiment
    stream: Stream
    method: Method
    training: Training
    settings: dict[str, Any]

    @property
    def fitted(self) -> bool:
        """Whether the stream has no presets, so that omitted settings are fitted to its images."""
        return not (isinstance(self.experiment.stream, str) and presets.has(self.experiment.stream))

    @property
    def threads(self) -> int | None:
        """The number of CPU threads to use; None: as many as PyTorch chooses."""
        return usual_threads(self.training.network, self.stream.data.image_shape)

    @property
    def facts(self) -> dict[str, Any]:
        """The experiment as plain values, for a record."""
        e = self.experiment
        buffer = e.buffer if self.method.draws else None
        return {
            "stream": self.stream.name, "method": e.method, "buffer": buffer, "seed": e.seed,
            "variant": e.variant, "validation": self.stream.validation,
        }  # fmt: skip

    @property
    def steps_by_task(self) -> list[int]:
        """The steps of each task, or of all tasks at once."""
        return _steps_by_task(self.stream, self.training, self.method.joint)

    @property
    def warnings(self) -> list[str]:
        """What a user should know before training."""
        given = self.experiment.settings
        steps = inf  # what a preset averages over fits its own steps
        others = {name: value for name, value in given.items() if name not in ("epochs", "batch")}
        _, preset = check(replace(self.experiment, settings=others))
        t = self.training
        if (t.epochs, t.batch) != (preset.epochs, preset.batch) and "alpha" not in given and not self.fitted:
            steps = fmean(self.steps_by_task)
        found = self.method.plan_warnings(self.training, steps)
        if t.mirrored and not t.flip:
            found.append("predictions use mirror images, but training does not: set flip=true too, or mirrored=false")
        return found

    def slow_on(self, device: torch.device) -> list[str]:
        """Return a hint if a device takes long for a network that nobody chose."""
        chosen = not self.fitted or "network" in self.experiment.settings
        if chosen or device.type != "cpu" or self.training.network != "resnet18":
            return []
        return ["ResNet-18 takes long on a CPU: with network=small, training is many times as fast"]

    @property
    def identity(self) -> str:
        """What identifies this run, as JSON: experiment, settings, stream, and the classes of your own stream."""
        classes = [] if isinstance(self.experiment.stream, str) else [self.stream.data.class_names]
        settings = {name: v for name, v in self.settings.items() if name not in ADDED or v != ADDED[name]}
        return json.dumps([self.facts, settings, self.stream.fingerprint, *classes], sort_keys=True)

    @property
    def name(self) -> str:
        """The name of the run and its folder: readable, and different for different settings."""
        f = self.facts
        stream = re.sub(r"[^\w.+-]+", "_", f["stream"]).strip(".-") or "stream"
        parts = [stream, f["method"], *([f["buffer"]] if f["buffer"] else []), f"seed{f['seed']}"]
        return "-".join([*map(str, parts), sha256(self.identity.encode()).hexdigest()[:6]])


def usual_threads(network: str, image_shape: Sequence[int]) -> int | None:
    """Return 1 for a small step: hardly slower, and much faster on a shared machine. Otherwise PyTorch's choice."""
    return 1 if network in SMALL_NETWORKS and prod(image_shape) <= SMALL_INPUT else None


def as_learned(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of another version with those that it did not have, as they were then, and without old ones."""
    names = {*setting_types(lookup("method", method, METHODS)), *setting_types(Training)}
    return {**{name: value for name, value in ADDED.items() if name in names}, **without_removed(settings)}


def without_removed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that are gone and did nothing."""
    return {name: value for name, value in settings.items() if name not in REMOVED or value != REMOVED[name]}


def prepare(
    experiment: Experiment, data: Path | None = None, loaded: dict[tuple[str, float], Stream] | None = None
) -> Plan:
    """Resolve all settings, then load the data, so that a wrong name costs no time. `loaded` streams are shared."""
    e = experiment
    if isinstance(e.stream, str):
        check_name("stream", e.stream, streams.STREAMS)
    elif e.validation:
        raise UsageError("validation is for streams by name: use class_il(..., validation=0.1) for your own")
    method, training = check(e)
    stream = _load(e.stream, e.validation, data, loaded) if isinstance(e.stream, str) else e.stream
    plan = Plan(e, stream, method, training, as_dict(method, training))
    if not plan.fitted:
        return plan
    given = {"min_steps": 0, **e.settings} if "epochs" in e.settings else e.settings  # as many epochs as the user said
    fitted = _fitted_settings(stream)

    def settled() -> tuple[Method, Training]:
        return check(replace(e, settings={**fitted, **given}))

    _, training = settled()  # with the network that the learning rate depends on
    fitted["lr"] = min(training.lr, SAFE_LR) if training.network == "resnet18" else training.lr
    method, training = settled()  # with what further settings depend on
    classes = sum(len(task.classes) for task in stream.tasks) / len(stream.tasks)
    steps = fmean(_steps_by_task(stream, training))
    fitted |= method.fitted_settings(training, steps, classes, stream.data.image_shape)
    method, training = settled()
    return Plan(e, stream, method, training, as_dict(method, training))


def check(e: Experiment) -> tuple[Method, Training]:
    """Return the method and its training, as far as they are known without data; refuse what is invalid."""
    if lookup("method", e.method, METHODS).draws and e.buffer < 1:
        raise UsageError(f"a buffer of {e.buffer} holds nothing to replay: give at least 1 (or --method sgd)")
    return presets.resolve(e._preset_name, e.method, e.buffer, e.variant, e.settings)


def _load(name: str, validation: float, data: Path | None, loaded: dict[tuple[str, float], Stream] | None) -> Stream:
    loaded = {} if loaded is None else loaded
    if (name, validation) not in loaded:
        loaded[name, validation] = streams.load(name, data, validation)
    return loaded[name, validation]


def fitted_names(method: Method, training: Training) -> list[str]:
    """Return the names of the settings that are fitted to a stream without presets."""
    return [*FITTED, *method.fitted_settings(training, 1, 1, (1, 1, 1))]


def _steps_by_task(stream: Stream, training: Training, joint: bool = False) -> list[int]:
    images = [len(phase) for phase in stream.phases(joint)]
    epochs = training.passes_by_task(images, (task.classes for task in stream.tasks))
    return [n * training.steps(size) for n, size in zip(epochs, images, strict=True)]


def _fitted_settings(stream: Stream) -> dict[str, Any]:
    """Return the settings of every method that are fitted to a stream without presets: from its images."""
    images = stream.data.train_images[:: max(1, len(stream.data.train_images) // 10_000)]  # a sample is enough
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    height, width = images.shape[2:]
    network = "mlp" if height == 1 else "small" if max(height, width) <= 16 else "resnet18"
    mean, std = _feature_statistics(x) if is_row(x) else _channel_statistics(x)
    return {"network": network, "mean": mean, "std": std}


def _channel_statistics(x: Tensor) -> tuple[list[float], list[float]]:
    several = x.numel() > x.shape[1]  # values per channel: a single one has no deviation
    std = x.std((0, 2, 3), correction=int(several)).clamp(min=MIN_STD)
    return [round(v, 4) for v in x.mean((0, 2, 3)).tolist()], [round(v, 4) for v in std.tolist()]


def _feature_statistics(x: Tensor) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each feature; a constant one is only centred."""
    rows = x.flatten(1).double()
    mean, std = rows.mean(0), rows.std(0, correction=0)
    std = torch.where(std > CONSTANT * mean.abs().clamp(min=1e-30), std, 1.0)
    return [float(f"{v:.6g}") for v in mean.tolist()], [float(f"{v:.6g}") for v in std.tolist()]
