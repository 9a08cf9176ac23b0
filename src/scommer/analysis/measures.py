"""A run's statistics beyond accuracy: recency bias, calibration, class codes, and forgotten classes.

A class code is the row A[c, :] of a memory's activity: how many test images of class c activate each unit of the last
stage. To add a statistic to `scommer show` and the report, write a function of a record and a memory and give it a line
in MEASURES.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scommer.errors import UsageError
from scommer.runs.record import Record

Tasks = Sequence[Sequence[int]]  # the classes of each task

# --- recency and calibration


def last_seen(tasks: Tasks, classes: int) -> np.ndarray:
    """Return L(c) [C]: the last task, from 0, in which each class appears; -1 for a class of no task."""
    last = np.full(classes, -1)
    for t, members in enumerate(tasks):
        last[list(members)] = t
    return last


def recency_bias(class_probability: np.ndarray, tasks: Tasks) -> float:
    """Return how much more likely a class is to be predicted because it was in the last task; 1 means no bias.

    mean{p(c) : L(c) = T} / mean{p(c) : 1 ≤ L(c) < T}, with p(c) the mean softmax of class c over all test images
    and L(c) the last task with c. Where tasks are of equal size and share no class, this is the probability of the
    last task over the mean of the earlier ones. Where classes recur (GCIL), each counts by its last appearance.
    """
    last, final = last_seen(tasks, len(class_probability)), len(tasks) - 1
    recent, earlier = last == final, (last >= 0) & (last < final)
    if not recent.any() or not class_probability[earlier].any():  # or no earlier class is ever predicted
        return float("nan")
    return float(class_probability[recent].mean() / class_probability[earlier].mean())


def calibration_error(reliability: np.ndarray) -> float:
    """Return the expected calibration error in percent: 100 Σ_b n_b/n |conf_b - acc_b| over bins b of confidence.

    `reliability` holds for each bin its images n_b, summed confidence n_b conf_b and hits n_b acc_b.
    """
    images, confidence, hits = reliability.T
    n = images.sum()
    return float(100 * np.abs(confidence - hits).sum() / n) if n >= 1 else float("nan")


# --- class codes


def code_similarity(activity: np.ndarray) -> np.ndarray:
    """Return S[c, d] = A[c]·A[d] / (|A[c]| |A[d]|), the cosine between class codes; NaN for an inactive class."""
    a = activity.astype(np.float64)
    length = np.linalg.norm(a, axis=1, keepdims=True)
    unit = np.divide(a, length, out=np.full_like(a, np.nan), where=length > 0)
    return np.asarray(unit @ unit.T)


def code_overlap(activity: np.ndarray, tasks: Tasks) -> tuple[float, float]:
    """Return the mean S[c, d] over pairs c < d that shared a task, and over pairs that never did.

    Where tasks share no class, these are the pairs within and between tasks.
    """
    s = code_similarity(activity)
    met, seen = np.zeros(s.shape, dtype=bool), np.zeros(len(s), dtype=bool)
    for members in tasks:
        met[np.ix_(members, members)] = True
        seen[list(members)] = True
    pairs = np.triu(np.outer(seen, seen), 1) & ~np.isnan(s)
    return _mean(s[pairs & met]), _mean(s[pairs & ~met])


def code_correlation(activity: np.ndarray, p_s: np.ndarray) -> np.ndarray:
    """Return Pearson's r [C] of A[c, :] with P_s[c, :] over units; NaN for a class where either is constant."""
    a = activity - activity.mean(1, keepdims=True, dtype=np.float64)
    p = p_s - p_s.mean(1, keepdims=True, dtype=np.float64)
    scale = np.sqrt((a**2).sum(1) * (p**2).sum(1))
    return np.asarray(np.divide((a * p).sum(1), scale, out=np.full(len(a), np.nan), where=scale > 0))


# --- forgetting by class


def forgotten(class_accuracy: np.ndarray) -> np.ndarray:
    """Return f(c) = max(0, max_{t<T} a[t, c] - a[T, c]) [C]: the accuracy that a class lost since its best, in points.

    0 for a class without test images, whose accuracy is NaN.
    """
    a = class_accuracy.astype(np.float64)
    return np.asarray(np.nan_to_num(np.maximum(a[:-1].max(0) - a[-1], 0)))


def share_of_forgetting(class_accuracy: np.ndarray) -> np.ndarray:
    """Return f(c) / Σ_d f(d) [C] in percent; NaN if nothing was forgotten."""
    lost = forgotten(class_accuracy)
    return np.asarray(100 * lost / lost.sum() if lost.any() else np.full_like(lost, np.nan))


# --- arrays of a record


def array(record: Record, name: str) -> np.ndarray:
    """Return an array of a record; the error says why it is missing."""
    if name not in record.arrays:
        why = "it has no arrays.npz" if not record.arrays else "its method or its version does not keep it"
        raise UsageError(f"{record.name} holds no '{name}': {why}")
    return record.arrays[name]


def last_stage(record: Record) -> int:
    """Return the number of the last stage whose activity was counted."""
    stages = _stages(record)
    if not stages:
        raise UsageError(f"{record.name} holds no activity of units: run it again with --fresh, or with hidden units")
    return max(stages)


def _stages(record: Record) -> list[int]:
    """Return the stages whose activity was counted, from the names `activity/MEMORY/STAGE`."""
    return [int(found[1]) for name in record.arrays if (found := re.fullmatch(r"activity/.+/(\d{1,9})", name))]


def learned_code(record: Record) -> np.ndarray:
    """Return P_s of the last stage, [C, N]."""
    stage = last_stage(record)
    p_s = record.arrays.get(f"p_s/{stage}")
    if p_s is None or not p_s.any():
        raise UsageError(f"{record.name} learned no P_s: {record.experiment.method} ran without semantic dropout")
    if p_s.shape != array(record, f"activity/{record.inference}/{stage}").shape:
        raise UsageError(f"{record.name} has a P_s of another shape ({p_s.shape}) than its activity: run it again")
    return p_s


# --- the statistics of show and report


@dataclass(frozen=True)
class Measure:
    """A statistic of one memory of a run."""

    compute: Callable[[Record, str], float | None]  # None or NaN where the run does not have it
    digits: int
    meaning: str


def _recency_bias(record: Record, memory: str) -> float | None:
    p = record.arrays.get(f"class_probability/{memory}")
    if p is None or len(record.matrices[memory]["class_il"]) == 1:  # learned at once: no task is the last
        return None
    return recency_bias(p, record.stream.tasks)


def _calibration_error(record: Record, memory: str) -> float | None:
    bins = record.arrays.get(f"reliability/{memory}")
    return None if bins is None else calibration_error(bins)


def _overlap_within(record: Record, memory: str) -> float | None:
    activity = _activity(record, memory)
    return None if activity is None else code_overlap(activity, record.stream.tasks)[0]


def _overlap_between(record: Record, memory: str) -> float | None:
    activity = _activity(record, memory)
    return None if activity is None else code_overlap(activity, record.stream.tasks)[1]


def _correlation(record: Record, memory: str) -> float | None:
    activity = _activity(record, memory)
    p_s = None if activity is None else record.arrays.get(f"p_s/{last_stage(record)}")
    if activity is None or p_s is None or p_s.shape != activity.shape:
        return None
    return _mean(code_correlation(activity, p_s))


def _activity(record: Record, memory: str) -> np.ndarray | None:
    stages = _stages(record)
    return record.arrays.get(f"activity/{memory}/{max(stages)}") if stages else None


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


MEASURES: dict[str, Measure] = {
    "recency bias": Measure(
        _recency_bias,
        3,
        "how much likelier a class of the last task is to be predicted than an earlier one; 1: no bias",
    ),
    "ECE (%)": Measure(_calibration_error, 1, "expected calibration error"),
    "overlap within": Measure(_overlap_within, 3, "mean cosine between the codes of two classes that shared a task"),
    "overlap between": Measure(_overlap_between, 3, "mean cosine between the codes of two classes that never did"),
    "r with P_s": Measure(
        _correlation, 3, "correlation of a class's activity with the probability that its units are kept"
    ),
}


def measures(record: Record, memory: str) -> dict[str, float]:
    """Return the statistics that a record has for a memory."""
    found = {name: measure.compute(record, memory) for name, measure in MEASURES.items()}
    return {name: value for name, value in found.items() if value is not None and not np.isnan(value)}
