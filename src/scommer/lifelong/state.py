"""What a classifier has learned, and the file that holds it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from scommer import provenance
from scommer.errors import ScommerError, UsageError
from scommer.files import read_safetensors, write_output
from scommer.lifelong.frozen import Probe
from scommer.lifelong.history import History
from scommer.lifelong.inputs import InputForm
from scommer.lifelong.labels import Label, parse_classes
from scommer.runs import presets
from scommer.runs.checkpoint import with_current_names
from scommer.runs.experiment import as_learned
from scommer.runs.facts import from_json, parse_json
from scommer.runs.trained import Trained, trained, with_prefix


@dataclass(frozen=True)
class ClassifierState:
    """Everything learned so far. A classifier replaces it as a whole, so that a failure changes nothing."""

    tensors: Mapping[str, Tensor]  # the state of a learner: its memories and generators
    weights: Mapping[str, Tensor]  # of the memory used for inference: parameters and batch-norm statistics
    network: Trained  # with these weights
    settings: Mapping[str, Any]  # resolved with the first task
    method: str  # chosen by the user, or the default
    variant: str
    form: InputForm  # of what was learned
    labels: tuple[Label, ...]  # all classes, in the order of the network's outputs
    offered: int  # examples offered to episodic memory
    device: str  # the type of device it was learned on
    params: Mapping[str, Any]  # of the constructor
    history: History

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The labels as an array."""
        return np.array(self.labels)

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each class has occurred in a task, and was not forgotten since."""
        return np.isin(self.classes, self.history.classes)


@dataclass(frozen=True, kw_only=True)
class _About:
    """The content of a file besides tensors."""

    init: dict[str, Any]  # parameters of the constructor
    names: list[str]
    settings: dict[str, Any]
    form: list[Any]  # dtype and shape of an input
    method: str | None = None  # early files do not have it: that of the constructor, and likewise below
    variant: str | None = None
    labels: list[Any] | None = None
    feature_names: list[str] | None = None
    features: str | None = None
    probe: dict[str, Any] | None = None
    offered: int
    device: str
    history: list[dict[str, Any]]  # the newest tasks
    tasks: int | None = None  # how many there were; early files describe all of them
    seen: list[Any] | None = None  # the classes of all tasks
    code: dict[str, Any]
    versions: dict[str, Any]


@dataclass(frozen=True)
class _Probe:
    """The answer of a frozen network."""

    shape: list[int]
    answer: list[float]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """An entry of the history."""

    images: int
    range: list[float] | None = None  # early files do not have it
    classes: list[Any]
    loss: float
    seconds: float
    finished: str


def save_state(path: Path, state: ClassifierState) -> None:
    """Write a state to one file, completely or not at all."""
    about = {
        "init": state.params, "names": state.network.class_names, "settings": state.settings,
        "form": [state.form.dtype, state.form.shape], "labels": state.labels,
        "method": state.method, "variant": state.variant,
        "feature_names": state.form.feature_names, "features": state.form.features,
        "probe": state.form.probe and vars(state.form.probe),
        "offered": state.offered, "device": state.device, "history": state.history.newest,
        "tasks": state.history.tasks, "seen": state.history.classes,
        "code": provenance.code_identity(), "versions": provenance.versions(),
    }  # fmt: skip
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    tensors = {
        **{f"state/{name}": t.contiguous() for name, t in state.tensors.items()},
        **{f"answer/{name}": t for name, t in state.weights.items()},
        "about": torch.from_numpy(text.copy()),  # not in the header, whose size is limited
    }
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {path.name}: create it first")
    write_output(path, safetensors.torch.save(tensors, {"lifelong": _digest(tensors)}))


def load_state(path: Path, device: torch.device) -> ClassifierState:
    """Read a state from a file, with its network on `device`."""
    advice = "give a file written by LifelongClassifier.save"
    try:
        tensors, metadata = read_safetensors(path)
        digest = metadata.get("lifelong")
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from e
    except (SafetensorError, ValueError) as e:
        raise UsageError(f"{path} is damaged or not a classifier: {advice}") from e
    if digest is None:
        raise UsageError(f"{path} is not a classifier: {advice}")
    if digest != _digest(tensors):
        raise UsageError(f"{path} is damaged: restore it from a copy")
    try:
        return _state(tensors, device)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ScommerError) as e:
        raise UsageError(f"{path} has invalid content ({type(e).__name__}: {e}): {advice}") from e


def _state(tensors: Mapping[str, Tensor], device: torch.device) -> ClassifierState:
    """Return the state that a file's tensors hold; any error if they do not."""
    about = from_json(_About, parse_json(tensors["about"].numpy().tobytes().decode()))
    history = _history(about)
    init, weights, (dtype, shape) = about.init, with_prefix("answer/", tensors), about.form
    classes = parse_classes(init["classes"] if about.labels is None else about.labels, fewest=1)
    if about.names != [str(c) for c in classes]:
        raise ValueError("names and classes differ")
    if not history.classes or not all(c in classes for c in history.classes):
        raise ValueError("no task was learned, or one with other classes")
    if dtype not in ("uint8", "float32") or not all(type(n) is int and n > 0 for n in shape):
        raise ValueError(f"its images are {dtype} {shape}")
    if about.offered < 0:
        raise ValueError(f"{about.offered} examples were offered")
    if integers := [name for name, t in weights.items() if not t.is_floating_point()]:
        raise ValueError(f"{integers[0]} is {weights[integers[0]].dtype}")
    for name, t in tensors.items():
        if t.is_complex():
            raise ValueError(f"{name} is {t.dtype}")
        if t.is_floating_point() and not bool(t.isfinite().all()):
            raise ValueError(f"{name} is not finite")
    method, variant = about.method or init["method"], about.variant or init["variant"]
    settings = as_learned(method, about.settings)
    presets.resolve(presets.DEFAULT, method, init["buffer"], variant, settings)
    network = trained(method, settings, about.names, shape, weights, device)
    network.respond(torch.zeros((1, *network.image_shape), dtype=getattr(torch, dtype)))  # fails if it does not fit
    return ClassifierState(
        tensors=with_current_names(with_prefix("state/", tensors)),
        weights=weights,
        network=network,
        settings=settings,
        method=method,
        variant=variant,
        form=InputForm(
            dtype,
            network.image_shape,
            tuple(about.feature_names) if about.feature_names else None,
            about.features,
            None if about.probe is None else _probe(about.probe),
        ),
        labels=tuple(classes),
        offered=about.offered,
        device=about.device,
        params=init,
        history=history,
    )


def _history(about: _About) -> History:
    for task in about.history:
        entry = from_json(_Task, task, path="history.")
        if entry.range is not None and len(entry.range) != 2:
            raise ValueError(f"history.range is {entry.range}")
    number = len(about.history) if about.tasks is None else about.tasks
    if number < len(about.history):
        raise ValueError(f"it describes {len(about.history)} of {number} tasks")
    classes = dict.fromkeys([*(about.seen or ()), *(c for task in about.history for c in task["classes"])])
    return History(number, tuple(classes), tuple(about.history))


def _probe(values: dict[str, Any]) -> Probe:
    saved = from_json(_Probe, values, path="probe.")
    if len(saved.shape) != 3 or min(saved.shape) < 1 or not saved.answer:
        raise ValueError(f"a frozen network gave {len(saved.answer)} numbers for images of shape {saved.shape}")
    return Probe(tuple(saved.shape), tuple(saved.answer))


@contextmanager
def must_fit() -> Iterator[None]:
    """Turn whatever a state of another form may raise into one clear error."""
    try:
        yield
    except ScommerError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError) as e:
        raise UsageError(f"the state of this classifier does not fit its settings ({e}): load another copy") from e


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of all names and values, which reveals any damage."""
    h = sha256()
    for name, t in sorted(tensors.items()):
        h.update(f"{name}/{t.dtype}/{tuple(t.shape)}/".encode())
        h.update(t.flatten().view(torch.uint8).numpy().data)  # as bytes: NumPy has no bfloat16
    return h.hexdigest()
