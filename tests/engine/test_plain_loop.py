"""Two tasks of every method through `run` against the same training written as a plain loop (plain.py)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from plain import PLAIN, Plus, SCoMMER, flat

from scommer import Experiment, Stream, class_il
from scommer.data import load
from scommer.engine.learner import Learner
from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.runs.experiment import prepare

BUFFER, SEED = 12, 3
SHARED: dict[str, Any] = {
    "network": "small", "width": 6, "epochs": 3, "batch": 8, "replay": 6, "lr": 0.05, "pad": 1, "flip": True,
    "mean": 0.3, "std": 0.4, "drop_last": True, "min_steps": 0, "fill": False,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "der++": {"alpha": 0.3, "beta": 0.6},
    "cls-er": {"reg": 0.4, "r_plastic": 0.9, "r_stable": 0.5, "alpha": 0.8},
    "lwf": {"alpha": 2.0, "temperature": 1.5, "weight_decay": 0.01},
    "ewc": {"penalty": 30.0, "gamma": 0.7},
    "scommer": {"gamma": 0.4, "r": 0.6, "alpha": 0.85, "pi_s": 1.5, "pi_h": 2.0, "warmup": 0},
    "er": {"momentum": 0.5},
    "sgd": {"momentum": 0.8, "weight_decay": 0.05},
    "slda": {"shrinkage": 0.2, "weight_decay": 0.05},
}


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Four digits in two tasks, in an order that is not its own inverse."""
    digits = load("digits")
    few = torch.cat([(digits.train_labels == c).nonzero().flatten()[:28] for c in range(4)])
    return class_il((digits.train_images[few], digits.train_labels[few]), tasks=2, order=[1, 2, 3, 0], name="four")


def trained(method: str, stream: Stream, **more: Any) -> Learner:
    own = {**SHARED, "mean": [0.3], "std": [0.4], "balanced": False, **OWN.get(method, {}), **more}
    plan = prepare(Experiment(stream, method, BUFFER, SEED, "official", settings=own | _active(method)))
    learner = Learner(plan.stream, plan.method, plan.training, buffer=BUFFER, seed=SEED)
    for _ in learner.learn():
        pass
    return learner


def _active(method: str) -> dict[str, Any]:
    return {"active": SCoMMER.sparse} if method == "scommer" else {}


def close(found: Any, expected: Any, tolerance: float = 2e-4) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("teacher", "recent", "turned"),
    [("long_term", 0.0, 0.0), ("snapshot", 0.0, 0.0), ("long_term", 0.25, 0.4), ("snapshot", 0.0, 0.4)],
)
def test_the_variant_plus_leaves_what_a_plain_loop_leaves(
    teacher: str, recent: float, turned: float, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scommer.methods.plus.LONG", 25)  # a little longer than these tasks
    own = {"gamma": 0.4, "r": 0.6, "pi_s": 1.5, "pi_h": 2.0, "warmup": 0, "horizon": 0.4, "balance": 1.5, "teach": 0.7}
    own |= {"recent": recent, "turned": turned}
    dropout = {"dropout": "last", "statistics": "replay"}
    numbers = {k: v for k, v in SHARED.items() if k != "network"} | own
    plain = Plus(stream, SEED, BUFFER, own_teacher=teacher == "long_term", long=25, **numbers)
    plain.learn()
    given = {**SHARED, "mean": [0.3], "std": [0.4], **own, "active": SCoMMER.sparse, "teacher": teacher, **dropout}
    plan = prepare(Experiment(stream, "scommer", BUFFER, SEED, "plus", settings=given))
    learner = Learner(plan.stream, plan.method, plan.training, buffer=BUFFER, seed=SEED)
    for _ in learner.learn():
        pass
    memories = learner.memories
    close(learner.curve, plain.losses)
    close(memories.working.weights.theta, plain.net.vector())
    close(memories.long_term["long_term"].weights.theta, plain.slow.net.vector())
    close(memories.long_term["long_term"].weights.statistics, torch.cat(list(plain.slow.net.running.values())))
    if teacher == "snapshot":
        close(memories.long_term["snapshot"].weights.theta, plain.snapshot.vector())
    assert memories.episodic is not None
    x, y = (torch.stack(column) for column in zip(*plain.buffer.rows, strict=True))
    assert torch.equal(memories.episodic.fields["x"][:BUFFER], x)
    assert torch.equal(memories.episodic.fields["y"][:BUFFER], y)
    close(np.stack([row.class_il for row in learner.scores["long_term"]]), plain.matrix)


@pytest.mark.parametrize("method", METHODS)
def test_a_learner_leaves_what_a_plain_loop_leaves(method: str, stream: Stream) -> None:
    numbers = {k: v for k, v in SHARED.items() if k != "network"} | OWN.get(method, {})
    plain: Any = PLAIN[method](stream, SEED, BUFFER, **numbers)
    plain.learn()
    learner = trained(method, stream)
    memories = learner.memories
    close(memories.working.weights.theta, plain.net.vector())
    close(memories.working.weights.statistics, torch.cat(list(plain.net.running.values())))
    close(learner.curve, plain.losses)
    scores = np.stack([row.class_il for row in learner.scores[learner.method.inference]])
    close(scores, plain.matrix)
    if memories.episodic:
        fields = memories.episodic.fields
        for found, column in zip(fields.values(), zip(*plain.buffer.rows, strict=True), strict=True):
            close(found[:BUFFER], torch.stack(column))
    if method == "cls-er":
        for name, average in plain.slow.items():
            close(memories.long_term[name].weights.theta, average.net.vector())
            close(memories.long_term[name].weights.statistics, torch.cat(list(average.net.running.values())))
    if method == "scommer":
        code: Any = memories.parts["code"]
        close(memories.long_term["long_term"].weights.theta, plain.slow.net.vector())
        close(memories.long_term["long_term"].weights.statistics, torch.cat(list(plain.slow.net.running.values())))
        for l in range(2):
            assert np.array_equal(code.a_s[l], plain.a_s[l])
            close(code.p_s[l], plain.p_s[l])
            close(code.p_h[l], plain.p_h[l])
    if method == "lwf":
        close(memories.long_term["teacher"].weights.theta, plain.teacher.vector())
        assert memories.state["old"].nonzero().flatten().tolist() == plain.old
    if method in ("ncm", "slda"):
        assert memories.state["count"].tolist() == [len(rows) for rows in plain.rows]
        close(memories.state["mean"], [np.mean(rows, 0) for rows in plain.rows], 1e-6)
        rows = np.concatenate([np.array(rows) - np.mean(rows, 0) for rows in plain.rows])
        close(memories.state["scatter"], rows.T @ rows if method == "slda" else (rows**2).sum(0), 1e-6)
    if method == "ewc":
        close(memories.state["anchor"], flat(plain.anchor))
        close(memories.state["fisher"], flat(plain.fisher))


@pytest.mark.parametrize("method", ["sgd", "er", "der++", "scommer"])
def test_a_small_task_gets_more_passes_and_full_batches(method: str, stream: Stream) -> None:
    """Five images of a task: fewer than a batch. With SGD there is nothing to fill a batch with."""
    first, second = stream.tasks
    few = Stream("few", "class-il", stream.data, (first, replace(second, train=second.train[:5])))
    more = {"fill": True, "min_steps": 12}
    numbers = {k: v for k, v in SHARED.items() if k != "network"} | OWN.get(method, {}) | more
    plain: Any = PLAIN[method](few, SEED, BUFFER, **numbers)
    plain.learn()
    learner = trained(method, few, **more)
    assert len(learner.curve) == len(plain.losses) == 3 + 12
    assert learner.steps == (3 * 5 + 12,) * 2
    close(learner.curve, plain.losses)
    close(learner.memories.working.weights.theta, plain.net.vector())
    if learner.memories.episodic:
        rows = zip(*plain.buffer.rows, strict=True)
        for found, column in zip(learner.memories.episodic.fields.values(), rows, strict=True):
            close(found[:BUFFER], torch.stack(column))
    if method == "scommer":
        close(learner.memories.long_term["long_term"].weights.theta, plain.slow.net.vector())
        assert all(np.array_equal(a, b) for a, b in zip(learner.memories.parts["code"].a_s, plain.a_s, strict=True))


@pytest.mark.parametrize(
    ("images", "new", "steps"),
    [(1, False, 3), (5, False, 15), (8, False, 24), (20, False, 60), (800, False, 2000), (1, True, 10), (5, True, 50),
     (20, True, 60), (800, True, 2000)],
)  # fmt: skip
def test_small_tasks_and_the_horizon_of_long_term_memory(images: int, new: bool, steps: int, stream: Stream) -> None:
    """Without a new class, the horizon is a part of at least `min_steps` steps, so that a small task changes little."""
    training = Training(batch=8, epochs=20, min_steps=60, fill=True)
    assert training.passes(images, new) * training.steps(images) == steps
    few = replace(stream.tasks[0], train=stream.tasks[0].train[:1].repeat(images))
    tasks = Stream("few", "gcil", stream.data, (few, few))
    known = () if new else few.classes
    learner = Learner(tasks, METHODS["sgd"](), replace(training, network="mlp"), known=known)
    next(learner.learn())
    assert learner.memories.task_steps == (steps if new else max(60, steps))
    assert not learner.brings_new_class(1)
