"""Forgetting on request: remove remembered inputs and whole classes from a classifier's state."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scommer.errors import UsageError
from scommer.lifelong.labels import Label, encode_labels
from scommer.lifelong.state import ClassifierState
from scommer.lifelong.widening import EPISODIC, fresh_memories
from scommer.nn.weights import views
from scommer.runs.trained import trained


def remembered(state: ClassifierState) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return copies of the inputs in episodic memory, in the form in which they were learned, and their labels."""
    held = _held(state)
    if not held:
        return np.zeros((0, *state.form.shape), state.form.dtype), state.classes[:0]
    x = state.tensors[f"{EPISODIC}x"][:held].numpy().copy()
    return x, state.classes[state.tensors[f"{EPISODIC}y"][:held].numpy()]


def forget_inputs(state: ClassifierState, which: NDArray[np.bool_]) -> ClassifierState:
    """Return the state without these inputs of episodic memory and all copies of them; their slots are free again."""
    held = _held(state)
    if which.dtype != np.bool_ or which.shape != (held,):
        raise UsageError(
            f"`where` is {which.dtype} {which.shape}: give a mask of {held} booleans, one per remembered input"
        )
    if which.any():  # an input that was offered several times may be held several times
        inputs = [x.numpy().tobytes() for x in state.tensors[f"{EPISODIC}x"][:held]]
        gone = {inputs[i] for i in np.flatnonzero(which)}
        which = np.array([x in gone for x in inputs])
    kept = torch.from_numpy(np.flatnonzero(~which))
    tensors = dict(state.tensors)
    for name, t in state.tensors.items():
        if name.startswith(EPISODIC) and t.dim():
            tensors[name] = torch.zeros_like(t)
            tensors[name][: len(kept)] = t[kept]
    if f"{EPISODIC}seen" in tensors and which.any():
        tensors[f"{EPISODIC}seen"] = torch.tensor(len(kept))
        return replace(state, tensors=tensors, offered=len(kept))
    return state


def forget_classes(state: ClassifierState, classes: Sequence[Label], device: torch.device) -> ClassifierState | None:
    """Return the state without everything that belongs to these classes alone; None if no class is left.

    Their remembered inputs are removed, and their rows are reset in every tensor with a row for each class: the last
    layer, class means, codes and counts. A forgotten class has probability 0 until it is learned again. State that
    several classes share, the other layers and a covariance, does not change.
    """
    gone = torch.from_numpy(encode_labels(classes, state.labels))
    if set(state.classes[state.seen].tolist()) <= set(classes):
        return None
    if held := _held(state):
        state = forget_inputs(state, np.isin(state.tensors[f"{EPISODIC}y"][:held].numpy(), gone))
    n = len(state.labels)
    # Comparing two sizes shows which axes are classes. The seed differs, so that a reset row is not the original start.
    params = {**state.params, "seed": state.params["seed"] + 1 + state.history.tasks}
    fresh, wider = (fresh_memories(state, params, classes) for classes in (n, n + 1))
    network, other = fresh.working.network, wider.working.network
    positions = views(torch.arange(len(fresh.working.weights.theta)), network.parameters())
    pairs = zip(positions, network.parameters(), other.parameters(), strict=True)
    slots = torch.cat([_of_classes(at, q.shape, gone) for at, p, q in pairs if p.shape != q.shape])  # of the last layer
    lengths = {(n, n + 1): gone, (len(fresh.working.weights.theta), len(wider.working.weights.theta)): slots}
    wide = {name: t.shape for name, t in wider.tensors().items()}
    tensors = dict(state.tensors)
    for name, t in fresh.tensors().items():
        if not name.startswith("episodic/"):
            old = tensors[f"memories/{name}"]
            tensors[f"memories/{name}"] = _renewed(old, t.cpu(), wide[name], lengths)
    shapes = {name: t.shape for name, t in other.state_dict().items()}
    weights = {
        name: _renewed(state.weights[name], t.cpu(), shapes[name], lengths)
        for name, t in fresh.working.weights.named(network).items()
    }
    names = [str(c) for c in state.labels]
    answering = trained(state.method, state.settings, names, state.form.shape, weights, device)
    return replace(state, tensors=tensors, weights=weights, network=answering, history=state.history.without(classes))


def _of_classes(entries: Tensor, wider: Sequence[int], classes: Tensor) -> Tensor:
    """Return the entries of some classes, along the axis that grows."""
    axis = next(i for i, (n, more) in enumerate(zip(entries.shape, wider, strict=True)) if n != more)
    return entries.index_select(axis, classes).flatten()


def _renewed(old: Tensor, fresh: Tensor, wider: Sequence[int], lengths: Mapping[tuple[int, int], Tensor]) -> Tensor:
    """Return a tensor with the forgotten classes' entries reset to a fresh one's, along each axis that grows."""
    made = old.clone()
    for axis, pair in enumerate(zip(fresh.shape, wider, strict=True)):
        if pair[0] != pair[1]:
            made.index_copy_(axis, lengths[pair], fresh.index_select(axis, lengths[pair]).to(made.dtype))
    return made


def _held(state: ClassifierState) -> int:
    """Return how many inputs episodic memory holds."""
    slots = state.tensors.get(f"{EPISODIC}y")
    return 0 if slots is None else min(len(slots), state.offered)
