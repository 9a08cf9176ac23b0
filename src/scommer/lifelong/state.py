"""What a classifier has learned, and the file that holds it."""

import json
import operator
from collections.abc import Mapping
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
from scommer.files import read_safetensors, write_atomically
from scommer.lifelong.labels import parse_classes
from scommer.runs.checkpoint import with_current_names
from scommer.runs.trained import Trained, trained, with_prefix


@dataclass(frozen=True)
class ClassifierState:
    """Everything learned so far. A classifier replaces it as a whole, so that a failure changes nothing."""

    tensors: Mapping[str, Tensor]  # the state of a learner: its memories and generators
    weights: Mapping[str, Tensor]  # of the memory that answers: parameters and batch-norm statistics
    network: Trained  # with these weights
    settings: Mapping[str, Any]  # resolved with the first task
    input_form: tuple[str, tuple[int, ...]]  # dtype and shape [C, H, W] of an image
    offered: int  # examples offered to episodic memory
    device: str  # the type of device it was learned on
    params: Mapping[str, Any]  # of the constructor
    history: tuple[Mapping[str, Any], ...]  # one entry per task

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The labels, in the order of the network's outputs."""
        return np.array(parse_classes(self.params["classes"]))

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each class has occurred in a task."""
        return np.isin(self.classes, [c for task in self.history for c in task["classes"]])


def save_state(path: Path, state: ClassifierState) -> None:
    """Write a state to one file, completely or not at all."""
    about = {
        "init": state.params, "names": state.network.class_names, "settings": state.settings,
        "form": state.input_form, "offered": state.offered, "device": state.device, "history": state.history,
        "code": provenance.code_identity(), "versions": provenance.versions(),
    }  # fmt: skip
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    tensors = {
        **{f"state/{name}": t.contiguous() for name, t in state.tensors.items()},
        **{f"answer/{name}": t for name, t in state.weights.items()},
        "about": torch.from_numpy(text.copy()),  # not in the header, whose size is limited: a history grows
    }
    write_atomically(path, safetensors.torch.save(tensors, {"lifelong": _digest(tensors)}))


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
    about = json.loads(tensors["about"].numpy().tobytes())
    weights, (dtype, shape) = with_prefix("answer/", tensors), about["form"]
    if len(parse_classes(about["init"]["classes"])) != len(about["names"]):
        raise ValueError("names and classes differ")
    if not about["history"] or not all(isinstance(task["classes"], list) for task in about["history"]):
        raise ValueError("no task was learned")
    if integers := [name for name, t in weights.items() if not t.is_floating_point()]:
        raise ValueError(f"{integers[0]} is {weights[integers[0]].dtype}")
    for name, t in tensors.items():
        if t.is_floating_point() and not bool(t.isfinite().all()):
            raise ValueError(f"{name} is not finite")
    return ClassifierState(
        tensors=with_current_names(with_prefix("state/", tensors)),
        weights=weights,
        network=trained(about["init"]["method"], about["settings"], about["names"], shape, weights, device),
        settings=about["settings"],
        input_form=(dtype, tuple(shape)),
        offered=operator.index(about["offered"]),
        device=about["device"],
        params=about["init"],
        history=tuple(about["history"]),
    )


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of all names and values, which reveals any damage."""
    h = sha256()
    for name, t in sorted(tensors.items()):
        h.update(f"{name}/{t.dtype}/{tuple(t.shape)}/".encode())
        h.update(t.contiguous().numpy().data)
    return h.hexdigest()
