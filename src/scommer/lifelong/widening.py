"""Widening: make room for more classes in a classifier's state.

One rule covers every tensor of state, also those that a method keeps in `Memories.state` or `Memories.parts`. Each is
compared with the same tensor of a fresh learner that has all the classes. An axis that is longer there must be one of:

- classes: the known ones keep their positions, the new ones follow;
- weights: as many as the vector of all weights has, such as `theta` itself, `velocity`, or EWC's Fisher information
  and anchor. Every weight so far keeps its value, at its new position in the vector.

New entries start as in the fresh learner. There is one exception: a field of episodic memory whose last axis is
classes holds the logits of each example when it was stored. A new class gets the example's lowest logit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from scommer.errors import UsageError
from scommer.lifelong.labels import Label
from scommer.lifelong.state import ClassifierState
from scommer.methods import Memories, MemoryFactory
from scommer.nn.weights import to_vector, views
from scommer.runs import presets
from scommer.runs.trained import trained

EPISODIC = "memories/episodic/"


def widen(
    state: ClassifierState, params: Mapping[str, Any], labels: Sequence[Label], device: torch.device
) -> ClassifierState:
    """Return the state with room for all these classes, of which the first are the known ones."""
    names = [str(c) for c in labels]
    memories = fresh_memories(state, params, len(names))
    network, weights = memories.working.network, memories.working.weights
    growth = _Growth(
        classes=(len(state.classes), len(names)),
        weights=(len(state.tensors["memories/working/theta"]), len(weights.theta)),
        positions=_positions(state.weights, network, len(weights.theta)),
    )
    fresh = {f"memories/{name}": t for name, t in memories.tensors().items()}
    tensors = {name: growth.apply(name, t, fresh.get(name, t)) for name, t in state.tensors.items()}
    named = weights.named(network)
    inference_weights = {name: growth.apply(name, t, named[name]) for name, t in state.weights.items()}
    return replace(
        state,
        tensors=tensors,
        weights=inference_weights,
        network=trained(state.method, state.settings, names, state.form.shape, inference_weights, device),
        params=params,
        labels=tuple(labels),
    )


def fresh_memories(state: ClassifierState, params: Mapping[str, Any], classes: int) -> Memories:
    """Return the memories of a learner that starts with this many classes, of the same seed and settings."""
    method, training = presets.resolve(presets.DEFAULT, state.method, params["buffer"], state.variant, state.settings)
    image = torch.zeros(state.form.shape, dtype=getattr(torch, state.form.dtype))
    return MemoryFactory(image, classes, training, params["buffer"], params["seed"]).memories(method)


@dataclass(frozen=True)
class _Growth:
    """How the axes of classes and weights grow."""

    classes: tuple[int, int]  # number before and after
    weights: tuple[int, int]
    positions: Tensor  # of the weights so far, among those after

    def apply(self, name: str, old: Tensor, fresh: Tensor) -> Tensor:
        """Return the tensor with the shape of the fresh one; `old` itself if it has that shape."""
        if old.shape == fresh.shape:
            return old
        index: list[slice | Tensor] = []
        for lengths in zip(old.shape, fresh.shape, strict=True):
            if lengths[0] != lengths[1] and lengths not in (self.classes, self.weights):
                raise UsageError(
                    f"cannot add classes: {name} would grow from {tuple(old.shape)} to {tuple(fresh.shape)}, expected "
                    "an axis of classes or of weights; change the shape of this state in the method"
                )
            index.append(self.positions if lengths == self.weights else slice(lengths[0]))
        wide = fresh.cpu().clone(memory_format=torch.contiguous_format)
        wide[tuple(index)] = old
        if name.startswith(EPISODIC) and (old.shape[-1], fresh.shape[-1]) == self.classes:
            wide[..., old.shape[-1] :] = old.amin(-1, keepdim=True)
        return wide


def _positions(old: Mapping[str, Tensor], network: torch.nn.Module, length: int) -> Tensor:
    """Return where the weights so far are in the vector of all weights of the wider network."""
    names, parameters = zip(*network.named_parameters(), strict=True)
    positions = views(torch.arange(length), parameters)
    return to_vector(p[tuple(slice(n) for n in old[name].shape)] for name, p in zip(names, positions, strict=True))
