"""Two tasks of every method through `run` against the same training written as a plain loop (plain.py)."""

from typing import Any

import numpy as np
import pytest
import torch
from plain import PLAIN, SCoMMER, flat

from scommer import Experiment, Stream, class_il
from scommer.data import load
from scommer.engine.learner import Learner
from scommer.methods import METHODS
from scommer.runs.experiment import prepare

BUFFER, SEED = 12, 3
SHARED: dict[str, Any] = {
    "network": "small", "width": 6, "epochs": 3, "batch": 8, "replay": 6, "lr": 0.05, "pad": 1, "flip": True,
    "mean": 0.3, "std": 0.4,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "der++": {"alpha": 0.3, "beta": 0.6},
    "cls-er": {"reg": 0.4, "r_plastic": 0.9, "r_stable": 0.5, "alpha": 0.8},
    "lwf": {"alpha": 2.0, "temperature": 1.5, "weight_decay": 0.01},
    "ewc": {"penalty": 30.0, "gamma": 0.7},
    "scommer": {"gamma": 0.4, "r": 0.6, "alpha": 0.85, "pi_s": 1.5, "pi_h": 2.0, "warmup": 0},
    "er": {"momentum": 0.5},
}


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Four digits in two tasks, in an order that is not its own inverse."""
    digits = load("digits")
    few = torch.cat([(digits.train_labels == c).nonzero().flatten()[:28] for c in range(4)])
    return class_il((digits.train_images[few], digits.train_labels[few]), tasks=2, order=[1, 2, 3, 0], name="four")


def trained(method: str, stream: Stream) -> Learner:
    own = {**SHARED, "mean": [0.3], "std": [0.4], **OWN.get(method, {})}
    plan = prepare(Experiment(stream, method, BUFFER, SEED, settings=own | _active(method)))
    learner = Learner(plan.stream, plan.method, plan.training, buffer=BUFFER, seed=SEED)
    for _ in learner.learn():
        pass
    return learner


def _active(method: str) -> dict[str, Any]:
    return {"active": SCoMMER.sparse} if method == "scommer" else {}


def close(found: Any, expected: Any, tolerance: float = 2e-4) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), atol=tolerance, rtol=tolerance)


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
    if method == "ewc":
        close(memories.state["anchor"], flat(plain.anchor))
        close(memories.state["fisher"], flat(plain.fisher))
