"""What a record tells beyond accuracy: recency bias, calibration, class codes, and where forgetting falls.

A class code is the row A[c, :] of a memory's activity: how many test images of class c activate each unit of the
last stage.
"""

import numpy as np

from scommer.errors import UsageError
from scommer.runs.record import Record


def last_seen(tasks: list[list[int]], classes: int) -> np.ndarray:
    """L(c): the last task, from 0, in which each class appears; -1 for a class of no task."""
    last = np.full(classes, -1)
    for t, members in enumerate(tasks):
        last[members] = t
    return last


def recency_bias(class_probability: np.ndarray, tasks: list[list[int]]) -> float:
    """How much likelier a class is predicted because it was in the last task; 1 is none.

    mean{p(c) : L(c) = T} / mean{p(c) : 1 ≤ L(c) < T}, with p(c) the mean softmax of class c over all test images
    and L(c) the last task with c. Where tasks share no class and are of one size, it is the probability of the last
    task over the mean of the earlier ones; where classes come back (GCIL), each counts by its last appearance.
    """
    last, final = last_seen(tasks, len(class_probability)), len(tasks) - 1
    recent, earlier = last == final, (last >= 0) & (last < final)
    if not recent.any() or not class_probability[earlier].any():  # or no earlier class is ever thought of
        return float("nan")
    return float(class_probability[recent].mean() / class_probability[earlier].mean())


def calibration_error(reliability: np.ndarray) -> float:
    """Expected calibration error in percent: 100 Σ_b n_b/n |conf_b - acc_b| over bins b of confidence.

    `reliability` holds for each bin its images n_b, summed confidence n_b conf_b and hits n_b acc_b.
    """
    images, confidence, hits = reliability.T
    return float(100 * np.abs(confidence - hits).sum() / images.sum())


def code_similarity(activity: np.ndarray) -> np.ndarray:
    """S[c, d] = A[c]·A[d] / (|A[c]| |A[d]|), the cosine between class codes; NaN for a class without activity."""
    a = activity.astype(np.float64)
    length = np.linalg.norm(a, axis=1, keepdims=True)
    unit = np.divide(a, length, out=np.full_like(a, np.nan), where=length > 0)
    return np.asarray(unit @ unit.T)


def code_overlap(activity: np.ndarray, tasks: list[list[int]]) -> tuple[float, float]:
    """Mean S[c, d] over pairs c < d that were in one task together, and over pairs that never were.

    Where tasks share no class these are the pairs within and between tasks; in GCIL a pair counts as within if any
    task held both.
    """
    s = code_similarity(activity)
    met, seen = np.zeros(s.shape, dtype=bool), np.zeros(len(s), dtype=bool)
    for members in tasks:
        met[np.ix_(members, members)] = True
        seen[members] = True
    pairs = np.triu(np.outer(seen, seen), 1) & ~np.isnan(s)
    return _mean(s[pairs & met]), _mean(s[pairs & ~met])


def code_correlation(activity: np.ndarray, p_s: np.ndarray) -> np.ndarray:
    """[C] Pearson's r of A[c, :] with P_s[c, :] over units, for each class; NaN where either is the same for all."""
    a = activity - activity.mean(1, keepdims=True, dtype=np.float64)
    p = p_s - p_s.mean(1, keepdims=True, dtype=np.float64)
    scale = np.sqrt((a**2).sum(1) * (p**2).sum(1))
    return np.asarray(np.divide((a * p).sum(1), scale, out=np.full(len(a), np.nan), where=scale > 0))


def forgotten(class_accuracy: np.ndarray) -> np.ndarray:
    """[C] f(c) = max(0, max_{t<T} a[t, c] - a[T, c]): accuracy that a class lost since its best moment, in points.

    0 for a class without test images, whose accuracy is not known (NaN).
    """
    return np.asarray(np.nan_to_num(np.maximum(class_accuracy[:-1].max(0) - class_accuracy[-1], 0)))


def share_of_forgetting(class_accuracy: np.ndarray) -> np.ndarray:
    """[C] f(c) / Σ_d f(d) in percent: how much of all that was forgotten falls on each class; NaN if nothing was."""
    lost = forgotten(class_accuracy)
    return np.asarray(100 * lost / lost.sum() if lost.any() else np.full_like(lost, np.nan))


def array(record: Record, name: str) -> np.ndarray:
    """An array of a record, or an error that says what is missing."""
    if name not in record.arrays:
        near = "it has no arrays.npz" if not record.arrays else "its method or its version does not keep them"
        raise UsageError(f"{record.name} holds no '{name}': {near}")
    return record.arrays[name]


def last_stage(record: Record) -> int:
    """The number of the last stage whose activity was counted."""
    stages = [int(name.rsplit("/", 1)[1]) for name in record.arrays if name.startswith("activity/")]
    if not stages:
        raise UsageError(f"{record.name} holds no activity of units: run the experiment again with --fresh")
    return max(stages)


def learned_code(record: Record) -> np.ndarray:
    """P_s of the last stage, [C, N]."""
    p_s = record.arrays.get(f"p_s/{last_stage(record)}")
    if p_s is None or not p_s.any():
        raise UsageError(f"{record.name} learned no P_s: {record.experiment.method} ran without semantic dropout")
    return p_s


def measures(record: Record, memory: str) -> dict[str, float]:
    """All that the record holds for this memory, by the names that `scommer show` gives them; NaN left out."""
    tasks, arrays = record.stream.tasks, record.arrays
    found: dict[str, float] = {}
    in_order = len(record.matrix(memory)) > 1  # training at once has no last task
    if in_order and (p := arrays.get(f"class_probability/{memory}")) is not None:
        found["recency bias"] = recency_bias(p, tasks)
    if (bins := arrays.get(f"reliability/{memory}")) is not None:
        found["ECE (%)"] = calibration_error(bins)
    stage = last_stage(record) if any(name.startswith("activity/") for name in arrays) else 0
    if (activity := arrays.get(f"activity/{memory}/{stage}")) is not None:
        found["overlap within"], found["overlap between"] = code_overlap(activity, tasks)
        if (p_s := arrays.get(f"p_s/{stage}")) is not None:
            found["r with P_s"] = _mean(code_correlation(activity, p_s))
    return {name: value for name, value in found.items() if not np.isnan(value)}


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
