"""What a classifier knows after its tasks, and the file that carries it from one process to another."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from scommer.errors import UsageError
from scommer.files import metadata, write_atomically
from scommer.lifelong.labels import classes_of
from scommer.methods import Memories
from scommer.runs.checkpoint import renamed
from scommer.runs.trained import Trained, trained, under


@dataclass(frozen=True)
class ClassifierState:
    """All that learning has left so far: replaced as a whole, or not at all."""

    state: Mapping[str, Tensor]  # what training changes, and the generators
    weights: Mapping[str, Tensor]  # of the memory that answers, as it answers
    answering: Trained
    settings: Mapping[str, Any]
    form: tuple[str, tuple[int, ...]]  # of an image
    offered: int  # examples that episodic memory was offered
    device: str
    init: Mapping[str, Any]  # what the classifier was made with
    history: tuple[Mapping[str, Any], ...]

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The labels that may come."""
        return np.array(classes_of(self.init["classes"]))

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Which of them have come."""
        return np.isin(self.classes, [c for task in self.history for c in task["classes"]])


def widened(
    known: ClassifierState, init: Mapping[str, Any], memories: Memories, device: torch.device
) -> ClassifierState:
    """What is known, with room for as many classes as a new memories has; those that are new begin as they do there."""
    names = [str(c) for c in classes_of(init["classes"])]
    before, now = len(known.classes), len(names)
    fresh = {f"memories/{name}": t for name, t in memories.tensors().items()}
    state = {name: _widened(name, t, fresh.get(name, t), before, now) for name, t in known.state.items()}
    begun = memories.working.weights.named(memories.working.network)
    weights = {name: _corner(t, begun[name]) for name, t in known.weights.items()}
    answering = trained(init["method"], known.settings, names, known.form[1], weights, device)
    return replace(known, state=state, weights=weights, answering=answering, init=init)


def _widened(name: str, old: Tensor, fresh: Tensor, before: int, now: int) -> Tensor:
    if old.shape == fresh.shape:
        return old
    if old.dim() == 1:  # all weights of a network: the head's are the last, a row and then a bias for each class
        features = (len(fresh) - len(old)) // (now - before) - 1
        body = len(old) - before * (features + 1)
        parts, places = ((v[:body], *v[body:].split([n * features, n])) for v, n in ((old, before), (fresh, now)))
        return torch.cat([_corner(part, place) for part, place in zip(parts, places, strict=True)])
    made = _corner(old, fresh)
    if name.startswith("memories/episodic/"):  # what was answered then to a class that there was not: the least of all
        made[:, before:] = old.amin(1, keepdim=True)
    return made


def _corner(old: Tensor, fresh: Tensor) -> Tensor:
    """A fresh tensor with the old one in its first corner."""
    made = fresh.cpu().clone(memory_format=torch.contiguous_format)
    made[tuple(slice(n) for n in old.shape)] = old
    return made


def write(path: Path, known: ClassifierState) -> None:
    """Writes what is known."""
    about = {
        "init": known.init, "names": known.answering.class_names, "settings": known.settings, "form": known.form,
        "offered": known.offered, "device": known.device, "history": known.history,
        "code": provenance.code_identity(), "versions": provenance.versions(),
    }  # fmt: skip
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    tensors = {
        **{f"state/{name}": t.contiguous() for name, t in known.state.items()},
        **{f"answer/{name}": t for name, t in known.weights.items()},
        "about": torch.from_numpy(text.copy()),  # a header of safetensors has a limit, a history has none
    }
    write_atomically(path, safetensors.torch.save(tensors, {"lifelong": _digest(tensors)}))


def read(path: Path, device: torch.device) -> ClassifierState:
    """What a file holds, ready to answer on a device."""
    try:
        content = path.read_bytes()
        tensors = safetensors.torch.load(content)
        digest = metadata(content).get("lifelong")
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from e
    except (SafetensorError, ValueError) as e:
        raise UsageError(f"{path} is damaged, or no classifier: load another one") from e
    if digest is None:
        raise UsageError(f"{path} is no classifier: load another one")
    if digest != _digest(tensors):
        raise UsageError(f"{path} is damaged: load another one")
    about = json.loads(tensors["about"].numpy().tobytes())
    weights, (dtype, shape) = under("answer/", tensors), about["form"]
    return ClassifierState(
        state=renamed(under("state/", tensors)),
        weights=weights,
        answering=trained(about["init"]["method"], about["settings"], about["names"], shape, weights, device),
        settings=about["settings"],
        form=(dtype, tuple(shape)),
        offered=about["offered"],
        device=about["device"],
        init=about["init"],
        history=tuple(about["history"]),
    )


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Identifies names and values, so that any damage shows."""
    h = sha256()
    for name, t in sorted(tensors.items()):
        h.update(f"{name}/{t.dtype}/{tuple(t.shape)}/".encode())
        h.update(t.contiguous().numpy().data)
    return h.hexdigest()
