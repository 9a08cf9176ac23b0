"""What the learner does around a step: when it calls which hook, what it recalls, what its state holds."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from scommer import Stream, class_il
from scommer.data import from_arrays
from scommer.engine.calibration import Calibration
from scommer.engine.evaluate import evaluate
from scommer.engine.learner import Learner
from scommer.engine.state import restore, state_of
from scommer.methods import Batch, Memories, MemoryFactory, Method, Outcome, View
from scommer.methods.cls_er import CLSER
from scommer.methods.sgd import SGD
from scommer.methods.training import Training

PLAIN: dict[str, Any] = {
    "network": "small", "width": 4, "epochs": 3, "batch": 8, "replay": 32, "lr": 0.05, "pad": 0, "flip": False,
    "mean": (0.0,), "std": (1.0,),
}  # fmt: skip


@dataclass(frozen=True)
class Noting(Method):
    """Replay that notes every call of a hook, and the weights at that time."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    recalls: list[tuple[Batch, ...]] = field(default_factory=list)

    draws: ClassVar[int] = 2

    def note(self, hook: str, memories: Memories, *more: Any) -> None:
        self.calls.append((hook, float(memories.working.weights.theta.double().sum()), *more))

    def memories(self, factory: MemoryFactory) -> Memories:
        return Memories(factory.working(), factory.episodic())

    def loss(self, memories: Memories, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        self.note("loss", memories)
        self.recalls.append(recalled)
        z, fired = memories.working(task.x)
        return Outcome(cross_entropy(z, task.y), z, fired)

    def observe(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        self.note("observe", memories)

    def adjust_gradient(self, memories: Memories, recalled: tuple[Batch, ...], lr: float) -> None:
        self.note("adjust_gradient", memories, lr)

    def after_step(self, memories: Memories, task: Batch, outcome: Outcome) -> None:
        self.note("after_step", memories)

    def after_epoch(self, memories: Memories, epoch: int) -> None:
        self.note("after_epoch", memories, epoch)

    def after_task(self, memories: Memories, images: Any) -> None:
        self.note("after_task", memories, images.index.tolist())

    def views(self, memories: Memories, calibration: Any) -> list[View]:
        self.note("views", memories)
        return super().views(memories, calibration)


def numbered(order: list[int]) -> Stream:
    """Four classes of 8 images in two tasks: all pixels of image i have the value i + 1, so that none is black."""
    labels = np.arange(32) % 4
    images = np.broadcast_to(np.arange(1, 33, dtype=np.uint8)[:, None, None], (32, 6, 6))
    return class_il(from_arrays(images, labels, images[:8] + 100, labels[:8]), 2, order=order)


def numbers(x: Tensor) -> list[int]:
    """The images, by their pixels; -1 for an empty slot."""
    assert torch.equal(x, x[:, :1, :1, :1].expand_as(x))
    return [round(v) - 1 for v in (x[:, 0, 0, 0] * 255).tolist()]


def learned(method: Method, buffer: int = 50, order: tuple[int, ...] = (2, 3, 1, 0), **settings: Any) -> Learner:
    learner = Learner(numbered(list(order)), method, Training(**PLAIN | settings), buffer=buffer, seed=5)
    for _ in learner.learn():
        pass
    return learner


def test_hooks_are_called_in_their_order_at_their_time() -> None:
    method = Noting()
    stream = learned(method).stream
    step, epoch = ["loss", "observe", "adjust_gradient", "after_step"], ["after_epoch"]
    task = ((step * 2) + epoch) * 3 + ["after_task", "views"]
    assert [call[0] for call in method.calls] == ["views", *task * 2]  # the first one before any training
    assert [call[2] for call in method.calls if call[0] == "after_epoch"] == [0, 1, 2] * 2
    assert [call[2] for call in method.calls if call[0] == "after_task"] == [t.train.tolist() for t in stream.tasks]
    assert {call[2] for call in method.calls if call[0] == "adjust_gradient"} == {0.05}
    for before, after in zip(method.calls, method.calls[1:], strict=False):
        assert (before[1] != after[1]) == (before[0] == "adjust_gradient")  # weights change only after it


@pytest.mark.parametrize("offer", ["every_epoch", "first_epoch"])
def test_as_many_examples_are_recalled_as_are_there(offer: str) -> None:
    method = Noting()
    learner = learned(method, offer=offer)
    assert learner.memories.episodic is not None
    times = 3 if offer == "every_epoch" else 1
    offers = [16 * times * t + min(8 * s, 16 * times) for t in (0, 1) for s in range(6)]  # before each step
    assert [len(r[0].y) if r else 0 for r in method.recalls] == [min(32, n, 50) for n in offers]
    first, second = (set(task.train.tolist()) for task in learner.stream.tasks)
    for s, recalled in enumerate(method.recalls):
        for batch in recalled:
            assert set(numbers(batch.x)) <= (first if s < 7 else first | second)  # never an empty slot
    assert int(learner.memories.episodic.seen) == learner.offered == 32 * times


def test_each_draw_of_a_step_is_its_own() -> None:
    method = Noting()
    learned(method, replay=5)
    pairs = [tuple(numbers(batch.x) for batch in recalled) for recalled in method.recalls if recalled]
    assert all(len(pair) == 2 for pair in pairs)
    assert sum(set(a) != set(b) for a, b in pairs) > len(pairs) / 2


def test_statistics_are_recalibrated_on_memory_and_the_task_just_learned() -> None:
    learner = learned(Noting(), buffer=40, epochs=1)
    first, last = (set(task.train.tolist()) for task in learner.stream.tasks)
    batches = [numbers(x) for x in Calibration(learner)]
    # 32 of 40 slots are filled, one by each image; the last task's are there once more.
    assert sorted(i for b in batches for i in b) == sorted([*first, *last, *last])


def test_a_large_task_has_as_many_images_in_recalibration_as_memory_has() -> None:
    learner = learned(Noting(), buffer=6, epochs=1)
    last = set(learner.stream.tasks[-1].train.tolist())
    batches = [numbers(x) for x in Calibration(learner)]
    assert learner.memories.episodic is not None
    held = numbers(learner.augment.normalise(learner.memories.episodic.fields["x"][:6]))
    found = [i for b in batches for i in b]
    assert len(found) == 2 * 6
    for i in held:
        found.remove(i)
    assert set(found) <= last


def test_no_batch_of_a_recalibration_has_a_single_image() -> None:
    learner = learned(Noting(), buffer=3, epochs=1, replay=2)
    learner.phases[-1] = learner.phases[-1][:1]
    assert [len(x) for x in Calibration(learner)] == [4]  # not 3 and 1


def test_a_resumed_run_keeps_its_momentum() -> None:
    training = Training(**PLAIN | {"momentum": 0.9, "weight_decay": 0.01})
    whole, first, second = (Learner(numbered([0, 1, 2, 3]), SGD(), training, seed=1) for _ in range(3))
    for _ in whole.learn():
        pass
    for _, _ in zip(range(4), first.learn(), strict=False):
        pass
    restore(second, *state_of(first))
    for _ in second.learn():
        pass
    assert torch.equal(second.memories.working.weights.theta, whole.memories.working.weights.theta)


def test_the_views_of_cls_er_are_of_the_memories_they_name() -> None:
    learner = learned(CLSER(r_plastic=1.0, r_stable=0.3, alpha=0.6))
    working, slow = learner.memories.working, learner.memories.long_term
    expected = {
        "working": (working, working), "plastic": (slow["plastic"], slow["plastic"]),
        "stable": (slow["stable"], slow["stable"]), "stable/working": (slow["stable"], working),
    }  # fmt: skip
    assert learner.scores.keys() == expected.keys()
    for name, (memory, statistics) in expected.items():
        view = View(name, memory, statistics.weights.statistics.clone())
        scores = evaluate(view, learner.stream, learner.test_images, learner.test_labels, learner.augment)
        np.testing.assert_array_equal(scores.class_probability, learner.scores[name][-1].class_probability)
    found = [tuple(rows[-1].class_probability) for rows in learner.scores.values()]
    assert len(set(found)) == 4
