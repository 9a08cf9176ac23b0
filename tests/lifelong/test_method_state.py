"""State that a method holds by name: it is learned, widened with new classes, saved and loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from quick import SETTINGS, tasks
from torch import Tensor
from torch.nn.functional import cross_entropy

from scommer import LifelongClassifier, Stream
from scommer.errors import UsageError
from scommer.methods import METHODS, Batch, Memories, MemoryFactory, Method, Outcome, TaskImages

EPOCHS = 2
OPTIONS = SETTINGS | {"epochs": EPOCHS, "drop_last": False, "fill": False}  # so that every image counts, once


class ClassTables:
    """Sums of logits by true class [C, C], and a table [C, 2] that starts at 1 and counts images."""

    def __init__(self, factory: MemoryFactory) -> None:
        self.logits, self.counts = (
            factory.zeros(factory.classes, factory.classes),
            factory.zeros(factory.classes, 2) + 1,
        )

    def add(self, logits: Tensor, y: Tensor) -> None:
        self.logits.index_add_(0, y, logits)
        self.counts.index_add_(0, y, torch.ones(len(y), 2))

    def tensors(self) -> Mapping[str, Tensor]:
        return {"logits": self.logits, "counts": self.counts}


@dataclass(frozen=True)
class Anchored(Method):
    """SGD that is drawn back to the weights after the last task, by squared gradients, as in EWC."""

    draws: ClassVar[int] = 1

    def memories(self, factory: MemoryFactory) -> Memories:
        working = factory.working()
        theta = working.weights.theta
        state = {
            "fisher": torch.zeros_like(theta),
            "anchor": theta.clone(),
            "gradients": factory.zeros(2, len(theta)),  # of the last two steps
            "seen": factory.zeros(factory.classes, dtype=torch.int64),
            "steps": factory.zeros(),
        }
        episodic = factory.episodic(logits=torch.zeros(factory.classes))
        return Memories(working, episodic, parts={"tables": ClassTables(factory)}, state=state)

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        z, fired = memories.working(task.x)
        return Outcome(cross_entropy(z, task.y), z, fired)

    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        memories.state["seen"].index_add_(0, task.y, torch.ones_like(task.y))
        memories.state["steps"].add_(1)
        tables = memories.parts["tables"]
        assert isinstance(tables, ClassTables)
        tables.add(outcome.logits.detach(), task.y)

    def extra_fields(self, outcome: Outcome) -> Mapping[str, Tensor]:
        return {"logits": outcome.logits.detach()}

    def adjust_gradient(self, memories: Memories, recalled: tuple[Batch, ...], lr: float) -> None:
        gradient, state = memories.working.gradient, memories.state
        state["fisher"].add_(gradient**2)
        state["gradients"].copy_(torch.stack([state["gradients"][1], gradient]))
        gradient.add_(state["fisher"] * (memories.working.weights.theta - state["anchor"]), alpha=0.1)

    def after_task(self, memories: Memories, images: TaskImages) -> None:
        memories.state["anchor"].copy_(memories.working.weights.theta)


@dataclass(frozen=True)
class Paired(Anchored):
    """Holds a value for each pair of classes in one axis."""

    def memories(self, factory: MemoryFactory) -> Memories:
        memories = super().memories(factory)
        memories.state["pairs"] = factory.zeros(factory.classes * (factory.classes - 1) // 2)
        return memories


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "anchored", Anchored)
    monkeypatch.setitem(METHODS, "paired", Paired)


def state_of(model: LifelongClassifier) -> dict[str, Tensor]:
    return {name.removeprefix("memories/"): t for name, t in model._learned_state().tensors.items()}


def by_layer(vector: Tensor, model: LifelongClassifier) -> dict[str, Tensor]:
    """A vector of all weights, cut by the names of parameters; of the head, a row for each class."""
    network = model._learned_state().network.network
    names, sizes = zip(*((name, p.numel()) for name, p in network.named_parameters()), strict=True)
    layers = dict(zip(names, vector.split(sizes), strict=True))
    layers["head.weight"] = layers["head.weight"].view(len(layers["head.bias"]), -1)
    return layers


def assert_equal(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, t in found.items():
        assert t.dtype == expected[name].dtype
        assert torch.equal(t, expected[name]), name


@pytest.fixture
def model(stream: Stream) -> LifelongClassifier:
    return LifelongClassifier(3, "anchored", buffer=20, settings=OPTIONS, device="cpu").partial_fit(*tasks(stream)[0])


def test_state_is_learned_task_after_task(model: LifelongClassifier, stream: Stream) -> None:
    (_, first), (images, labels), *_ = tasks(stream)
    assert state_of(model)["state/seen"].tolist() == (EPOCHS * torch.bincount(first, minlength=3)).tolist()
    assert torch.equal(state_of(model)["state/anchor"], state_of(model)["working/theta"])
    fisher = state_of(model)["state/fisher"]
    both = torch.cat([first, labels[labels == 2]])
    model.partial_fit(images[labels == 2], labels[labels == 2])
    assert state_of(model)["state/seen"].tolist() == (EPOCHS * torch.bincount(both, minlength=3)).tolist()
    assert (state_of(model)["state/fisher"] >= fisher).all()


def test_state_of_the_length_of_the_weights_widens_like_the_weights(model: LifelongClassifier) -> None:
    before = {name: by_layer(t, model) for name, t in vectors(model).items()}
    model.add_classes(2)
    after = {name: by_layer(t, model) for name, t in vectors(model).items()}
    for name, layers in before.items():
        for layer, values in layers.items():
            known = after[name][layer][: len(values)]
            assert torch.equal(known, values), (name, layer)
            assert layer.startswith("head.") or len(after[name][layer]) == len(values)
    for layer in ("head.weight", "head.bias"):
        assert len(after["theta"][layer]) == 5
        assert torch.equal(after["anchor"][layer][3:], after["theta"][layer][3:])  # as a fresh learner's
        for name in ("fisher", "gradient 0", "gradient 1"):
            assert after[name][layer][:3].any()
            assert not after[name][layer][3:].any()


def vectors(model: LifelongClassifier) -> dict[str, Tensor]:
    state = state_of(model)
    rows = {f"gradient {i}": row for i, row in enumerate(state["state/gradients"])}
    return {"theta": state["working/theta"], "fisher": state["state/fisher"], "anchor": state["state/anchor"], **rows}


def test_axes_of_classes_grow_by_fresh_entries(model: LifelongClassifier) -> None:
    before = state_of(model)
    model.add_classes(2)
    after = state_of(model)
    assert after["state/seen"].tolist() == [*before["state/seen"].tolist(), 0, 0]
    assert after["state/steps"] == before["state/steps"] > 0
    logits, counts = after["tables/logits"], after["tables/counts"]
    assert torch.equal(logits[:3, :3], before["tables/logits"])
    assert logits.shape == (5, 5)
    assert logits[:2].any()
    assert not logits[3:].any()
    assert not logits[:, 3:].any()
    assert torch.equal(counts, 1 + after["state/seen"][:, None].expand(5, 2))


def test_stored_logits_of_new_classes_are_the_least_of_their_example(model: LifelongClassifier) -> None:
    before = state_of(model)
    model.add_classes(2)
    after = state_of(model)
    for old, new in zip(before["episodic/logits"].tolist(), after["episodic/logits"].tolist(), strict=True):
        assert new == [*old, min(old), min(old)]
    for field in ("x", "y", "seen"):
        assert torch.equal(after[f"episodic/{field}"], before[f"episodic/{field}"])


def test_state_is_saved_and_loaded_bit_for_bit(model: LifelongClassifier, stream: Stream, tmp_path: Path) -> None:
    for _ in range(2):
        model.save(tmp_path / "model")
        loaded = LifelongClassifier.load(tmp_path / "model", device="cpu")
        assert_equal(state_of(loaded), state_of(model))
        for one in (model, loaded):
            one.add_classes(1)
        assert_equal(state_of(loaded), state_of(model))
    images, labels = tasks(stream)[1]
    for one in (model, loaded):
        one.partial_fit(images, labels)
    assert_equal(state_of(loaded), state_of(model))
    counts = torch.bincount(torch.cat([tasks(stream)[0][1], labels]), minlength=5)
    assert state_of(model)["state/seen"].tolist() == (EPOCHS * counts).tolist()


def test_state_of_other_shapes_cannot_be_widened(stream: Stream) -> None:
    model = LifelongClassifier(3, "paired", buffer=20, settings=OPTIONS, device="cpu").partial_fit(*tasks(stream)[0])
    before = state_of(model)
    with pytest.raises(UsageError, match=r"memories/state/pairs .* \(3,\) to \(10,\)"):
        model.add_classes(2)
    assert model.classes_.tolist() == [0, 1, 2]
    assert_equal(state_of(model), before)
