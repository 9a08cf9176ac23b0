"""Experiments that take a fraction of a second, and what makes two runs the same."""

from pathlib import Path

import numpy as np

from scommer import Experiment, Stream, class_il
from scommer.runs.record import Record

QUICK = {"network": "mlp", "width": 4, "epochs": 2, "batch": 13, "replay": 4}
Result = tuple[Record, bytes]


def stream() -> Stream:
    """Two tasks of two classes: 26 training images each, which are 2 steps an epoch."""
    labels = np.arange(64) % 4
    noise = np.random.default_rng(0).random((64, 4, 4)) * 60
    return class_il((np.uint8(noise + labels[:, None, None] * 40), labels), tasks=2, name="s-tiny")


def experiment(method: str, seed: int = 0) -> Experiment:
    more = {"warmup": 0} if method == "scommer" else {}
    return Experiment(stream(), method, buffer=8, seed=seed, settings=QUICK | more)


def result(folder: Path) -> Result:
    """Return the record and the final weights in a run's folder."""
    return Record.load(folder), (folder / "weights.safetensors").read_bytes()


def assert_same(a: Result, b: Result) -> None:
    """Check that two runs computed the same, bit for bit."""
    for part in ("name", "experiment", "settings", "stream", "matrices", "untrained", "scores", "inference"):
        assert getattr(a[0], part) == getattr(b[0], part), part
    assert a[0].times.steps == b[0].times.steps
    assert a[0].arrays.keys() == b[0].arrays.keys()
    for name in a[0].arrays:
        np.testing.assert_array_equal(a[0].arrays[name], b[0].arrays[name], err_msg=name)
    assert a[1] == b[1]  # every weight
