"""Records with made-up scores, written to disk as runs are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES

from scommer.runs import presets
from scommer.runs.record import Record
from scommer.runs.settings import as_dict

TASKS = [[0, 1], [2, 3]]


def record(
    seed: int,
    accuracy: float,
    *,
    stream: str = "s-cifar10",
    method: str = "scommer",
    buffer: int | None = 200,
    precision: str = "bf16",
    fingerprint: str = "f",
    **settings: Any,
) -> Record:
    """Two tasks; working memory scores 10 points less than the one used for inference, Task-IL 20 points more."""
    resolved = as_dict(*presets.resolve(stream, method, buffer or 0, "official", settings))
    experiment = replace(EXPERIMENT, stream=stream, method=method, buffer=buffer, seed=seed)
    memory = "long_term" if method == "scommer" else "working"
    ends = {"working": accuracy - 10, memory: accuracy}
    matrices = {
        m: {"class_il": [[90.0, 0.0], [a - 5, a + 5]], "task_il": [[95.0, 50.0], [a + 20] * 2]} for m, a in ends.items()
    }
    scores = {m: {"class_il": {"accuracy": a}, "task_il": {"accuracy": a + 20}} for m, a in ends.items()}
    changes = "-".join(f"{k}{v}" for k, v in settings.items())
    return Record(
        f"{stream}-{method}-{buffer}-seed{seed}-{changes or 'preset'}",
        experiment, resolved,
        replace(STREAM, name=stream, tasks=TASKS, classes=list("abcd"), fingerprint=fingerprint),
        memory, matrices, {}, scores, replace(CODE, commit="0123456"), {},
        replace(DEVICE, name="a GPU", precision=precision), replace(TIMES, seconds=120.0, steps=1000, together=2),
        arrays={
            "loss": np.arange(10.0), f"class_accuracy/{memory}": np.array([[1.0, 1, 0, 0], [10, 20, 30, 60]]),
            f"class_probability/{memory}": np.array([0.1, 0.1, 0.3, 0.5]),
        },
    )  # fmt: skip


def write(folder: Path, *records: Record) -> None:
    """Save records as finished runs in a folder."""
    for r in records:
        (folder / r.name).mkdir(parents=True)
        r.save(folder / r.name)
