"""One suite that every method passes."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scommer.data import load
from scommer.engine.learner import Learner
from scommer.engine.rehearsal import rehearse
from scommer.engine.state import restore, state_of
from scommer.methods import METHODS
from scommer.runs import checkpoint
from scommer.runs.presets import resolve
from scommer.streams import Stream, class_il

BUFFER = 20
PLUS = "scommer, plus"
pytestmark = pytest.mark.parametrize("method", [*METHODS, PLUS])


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Six digits in three tasks, 40 images of each."""
    digits = load("digits")
    few = torch.cat([(digits.train_labels == c).nonzero().flatten()[:40] for c in range(6)])
    return class_il((digits.train_images[few], digits.train_labels[few]), tasks=3, name="s-digits")


def learner(stream: Stream, method: str, seed: int = 0, **settings: Any) -> Learner:
    shared = {"network": "small", "drop_last": True}  # where a method has its own, as if it had none
    overrides = {**shared, "width": 4, "epochs": 3, "batch": 8, "replay": 8, **settings}
    overrides |= {"warmup": 1} if method in ("scommer", PLUS) else {}
    overrides |= {"turned": 0.3} if method == PLUS else {}
    made, training = resolve("s-digits", *cell(method, BUFFER), overrides)
    return Learner(stream, made, training, buffer=BUFFER, seed=seed)


def cell(method: str, buffer: int) -> tuple[str, int, str]:
    """Return the method, the buffer and the variant."""
    name, _, variant = method.partition(", ")
    return name, buffer, variant or "official"


def finish(learner: Learner) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    for _ in learner.learn():
        pass
    return state_of(learner)


def assert_same(a: tuple[dict[str, torch.Tensor], dict[str, Any]], b: tuple[Any, Any]) -> None:
    assert a[1] == b[1]
    assert a[0].keys() == b[0].keys()
    assert [name for name in a[0] if not torch.equal(a[0][name], b[0][name])] == []


def test_the_same_seed_gives_the_same_run(stream: Stream, method: str) -> None:
    assert_same(finish(learner(stream, method)), finish(learner(stream, method)))


def test_another_seed_gives_another_run(stream: Stream, method: str) -> None:
    a, b = finish(learner(stream, method)), finish(learner(stream, method, seed=1))
    assert not torch.equal(a[0]["memories/working/theta"], b[0]["memories/working/theta"])
    assert a[1]["curve"] != b[1]["curve"]


def test_a_resumed_run_equals_an_uninterrupted_one(stream: Stream, method: str, tmp_path: Path) -> None:
    whole = finish(learner(stream, method))
    moments = sum(1 for _ in learner(stream, method).learn())
    for stop in random.Random(7).sample(range(1, moments), 2):
        first = learner(stream, method)
        for _, _ in zip(range(stop), first.learn(), strict=False):
            pass
        folder = tmp_path / str(stop)
        folder.mkdir()
        checkpoint.save(folder, *state_of(first))
        saved = checkpoint.load(folder, warn=pytest.fail)
        assert saved is not None
        second = learner(stream, method)
        restore(second, *saved)
        assert_same(whole, finish(second))


class NoHostRead(TorchDispatchMode):
    """Fails on every operation whose result the host must wait for."""

    reads = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        assert not name.startswith(self.reads), f"{name} reads from the device"
        if name in ("index", "index_put", "index_put_"):
            assert not any(i is not None and i.dtype == torch.bool for i in args[1]), (
                "a mask as index has no fixed shape"
            )
        return func(*args, **(kwargs or {}))


def test_a_step_reads_nothing_from_the_device(stream: Stream, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(stream, method)
    moments = made.learn()
    for _ in range(5):
        next(moments)
    for name in ("tolist", "numpy", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, lambda self, name=name: pytest.fail(f"Tensor.{name} in a step"))
    index = stream.tasks[0].train[:8]
    with NoHostRead():
        made.step(index, 8 if made.method.draws else 0, True)
        with pytest.raises(AssertionError, match="reads from the device"):
            bool(made.loss > 0)  # the detector detects


def test_a_rehearsal_changes_nothing(stream: Stream, method: str) -> None:
    """Before training, and in the middle of a task."""
    plain, rehearsed = learner(stream, method), learner(stream, method)
    rehearse(rehearsed)
    moments = plain.learn(), rehearsed.learn()
    for _ in range(35):
        for each in moments:
            next(each)
    rehearse(rehearsed)
    for each in moments:
        for _ in each:
            pass
    assert_same(state_of(plain), state_of(rehearsed))


def test_memory_has_the_declared_size(stream: Stream, method: str) -> None:
    made = learner(stream, method)
    finish(made)
    if not made.method.draws:
        assert made.memories.episodic is None
        return
    memory = made.memories.episodic
    assert memory is not None
    kept = memory.tensors()
    assert kept["x"].shape == (BUFFER, *stream.data.image_shape)
    assert kept["x"].dtype == torch.uint8
    assert int(memory.seen) == made.offered == made.steps[0] * 8
    originals = {
        image.numpy().tobytes(): int(y)
        for image, y in zip(stream.data.train_images, stream.data.train_labels, strict=True)
    }
    for image, y in zip(kept["x"], kept["y"], strict=True):  # raw training images with their labels
        assert originals[image.numpy().tobytes()] == int(y)


def test_global_randomness_is_untouched(stream: Stream, method: str) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    finish(learner(stream, method, epochs=1))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002
    assert before[2] == random.getstate()


def test_every_memory_is_scored_after_every_task(stream: Stream, method: str) -> None:
    made = learner(stream, method, epochs=1)
    finish(made)
    assert made.method.inference in made.scores
    for rows in made.scores.values():
        assert len(rows) == (1 if made.method.joint else 3)
        assert all(row.class_il.shape == (3,) for row in rows)


def test_batches_that_do_not_divide(stream: Stream, method: str) -> None:
    """A last partial batch is dropped or kept; a task smaller than a batch is one batch."""
    n = len(stream.tasks[0].train) * (3 if method == "joint" else 1)
    for settings, steps in (
        ({"batch": 30}, n // 30),
        ({"batch": 30, "drop_last": False}, -(-n // 30)),
        ({"batch": 500}, 1),
    ):
        made = learner(stream, method, **settings)
        assert made.steps_per_epoch(0) == steps
        seen: list[torch.Tensor] = []
        run_step = made.run_step

        def noted(index: torch.Tensor, *rest: Any, run_step: Any = run_step, seen: Any = seen) -> None:
            seen.append(index)
            run_step(index, *rest)

        made.run_step = noted
        moments = made.learn()
        while next(moments) != "epoch":
            pass
        assert len(seen) == steps
        together = torch.cat(seen)
        assert len(together.unique()) == len(together)  # each image at most once an epoch
        assert len(together) == (n if settings != {"batch": 30} else 30 * steps)


@pytest.mark.parametrize("offer", ["first_epoch", "last_epoch"])
def test_memory_can_be_offered_one_epoch_only(stream: Stream, method: str, offer: str) -> None:
    made = learner(stream, method, offer=offer)
    after = []  # each epoch of the first task
    for moment in made.learn():
        if moment == "epoch":
            after.append(made.offered)
        elif moment == "task":
            break
    n = made.steps[0] * 8 // 3
    assert after == ([n, n, n] if offer == "first_epoch" else [0, 0, n])
    finish(made)
    assert made.offered == made.steps[0] * 8 // 3
    if made.memories.episodic:
        assert int(made.memories.episodic.seen) == made.offered


def test_what_has_no_convolutions_is_computed_in_full_precision(stream: Stream, method: str) -> None:
    """Only its images are rounded."""
    made, training = resolve("s-digits", *cell(method, 20), {"epochs": 1, "network": "mlp"})
    theta = []
    for precision in ("bf16", "fp32"):
        each = Learner(stream, made, training, buffer=20, seed=1, precision=precision)
        moments = each.learn()
        while next(moments) != "epoch":
            pass
        theta.append(each.memories.working.weights.theta)
    assert theta[0].dtype == torch.float32
    difference = (theta[0] - theta[1]).norm() / theta[1].norm()
    assert 0 < difference < 0.05
