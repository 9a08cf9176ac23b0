"""Made-up records with everything that figures and statistics read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES

from scommer.engine.evaluate import summary
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.record import Record

# A stream with presets, so that its runs are of the variant `official` unless they say otherwise.
presets.register({"stream": {"s-made": {"like": "default"}}})


def made_record(
    method: str = "scommer", seed: int = 0, *, buffer: int | None = 30, stream: str = "s-made",
    tasks: Sequence[Sequence[int]] = ((0, 1), (2, 3), (4, 5)), kind: str = "class-il", classes: int = 6,
    units: int = 7, settings: dict[str, Any] | None = None, arrays: bool = True,
) -> Record:  # fmt: skip
    """A run with random numbers, which depend on the arguments alone."""
    rng = np.random.default_rng([seed, len(method), buffer or 0, len(tasks)])
    memories = {"scommer": ("working", "long_term"), "cls-er": ("working", "plastic", "stable")}.get(
        method, ("working",)
    )
    names = ("class_il", "task_il") if kind == "class-il" else ("class_il",)
    rows = 1 if method == "joint" else len(tasks)
    r = {m: {s: rng.uniform(20, 95, (rows, len(tasks))) for s in names} for m in memories}
    untrained = np.full(len(tasks), 10.0)
    epochs = 4
    held: dict[str, np.ndarray] = {"loss": rng.uniform(0.01, 2, rows * epochs)}
    for m in memories:
        held[f"class_accuracy/{m}"] = rng.uniform(0, 100, (rows, classes))
        held[f"class_probability/{m}"] = rng.dirichlet(np.ones(classes))
        images = rng.integers(0, 9, 15)
        held[f"reliability/{m}"] = np.stack([images, images * rng.uniform(0, 1, 15), images // 2], 1).astype(float)
        for stage in (1, 2):
            held[f"activity/{m}/{stage}"] = rng.integers(1, 50, (classes, units)).astype(np.int32)
    if method == "scommer":
        held |= {f"p_s/{stage}": rng.uniform(0, 0.9, (classes, units)).astype(np.float16) for stage in (1, 2)}
    preset = presets.settings(stream, method, buffer) if method in METHODS else {}
    return Record(
        name=f"{stream}-{method}-{buffer}-seed{seed}",
        experiment=replace(EXPERIMENT, stream=stream, method=method, buffer=buffer, seed=seed),
        settings=preset | {"epochs": epochs, "lr": 0.1} | (settings or {}),
        stream=replace(STREAM, name=stream, kind=kind, classes=[f"class_{c}" for c in range(classes)],
                       tasks=[list(t) for t in tasks], fingerprint=f"{stream}/{tasks}"),
        inference=memories[-1], matrices={m: {s: v.tolist() for s, v in by.items()} for m, by in r.items()},
        untrained={s: untrained.tolist() for s in names},
        scores={m: {s: summary(v, untrained, kind) for s, v in by.items()} for m, by in r.items()},
        code=CODE, versions={"torch": ""}, device=DEVICE, times=TIMES,
        arrays=held if arrays else {},
    )  # fmt: skip
