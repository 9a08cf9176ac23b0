"""The record of a run: record.json and arrays.npz, read, written and found."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from scommer.errors import RunWarning, UsageError, lookup
from scommer.files import expand_user, write_atomically
from scommer.runs.facts import (
    CodeFacts,
    DeviceFacts,
    ExperimentFacts,
    Progress,
    StreamFacts,
    Times,
    from_json,
    parse_json,
    to_json,
)  # fmt: skip

FORMAT = 1
LONGEST = 1e12  # seconds of a run
LARGEST = 2**24  # bytes of a record.json; ours have some ten thousand
LARGEST_UNPACKED = 2**30  # bytes of all arrays
SETTINGS = ("class_il", "task_il")  # in which a memory is scored
ARRAYS = {  # axes (R rows of a matrix, T tasks, C classes, others of any length) and range of the arrays that we read
    "loss": ("E", -1e38, 1e38), "class_accuracy": ("RC", 0, 100), "class_probability": ("C", 0, 1),
    "task_probability": ("T", 0, 1), "reliability": ("B3", 0, 1e15), "activity": ("CN", 0, 1e15), "p_s": ("CN", 0, 1),
}  # fmt: skip
REMEDY = "remove its folder, or run it again with --fresh"


@dataclass(eq=False, repr=False)  # arrays do not compare to one truth value
class Record:
    """One run: what was asked for, what computed it, and every accuracy matrix.

    `matrices[memory]["class_il"]` is R[t, i] in percent, row t after task t. `untrained` is the row before any
    training. `scores[memory]["class_il"]` holds the measures that follow from R.
    """

    name: str
    experiment: ExperimentFacts
    settings: dict[str, Any]
    stream: StreamFacts
    inference: str  # the memory used for inference
    matrices: dict[str, dict[str, list[list[float]]]]
    untrained: dict[str, list[float]]
    scores: dict[str, dict[str, dict[str, float]]]
    code: CodeFacts
    versions: dict[str, str]
    device: DeviceFacts
    times: Times
    format: int = FORMAT
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        e = self.experiment
        return f"Record({self.name!r}: {e.method} on {e.stream}, seed {e.seed}, {self.inference} memory)"

    def matrix(self, memory: str | None = None, setting: str = "class_il") -> np.ndarray:
        """Return R[t, i] of a memory, by default the one used for inference."""
        return np.array(self._lookup(self.matrices, memory, setting))

    def accuracy(self, memory: str | None = None, setting: str = "class_il") -> float:
        """Return the mean accuracy over tasks after the last one."""
        found: float = self._lookup(self.scores, memory, setting)["accuracy"]
        return found

    def _lookup(self, values: Mapping[str, Mapping[str, Any]], memory: str | None, setting: str) -> Any:
        of_memory = lookup(f"memory of {self.name}", memory or self.inference, values)
        return lookup(f"setting of {self.name}", setting, of_memory)

    @property
    def step_ms(self) -> float:
        """The time of one learner's step: runs side by side share it."""
        return 1000 * self.times.seconds / self.times.steps / (self.times.together or 1)

    def save(self, folder: Path) -> None:
        """Write arrays.npz, then record.json: a folder with a record is complete."""
        buffer = BytesIO()
        np.savez_compressed(buffer, **self.arrays)  # type: ignore[arg-type]
        write_atomically(folder / "arrays.npz", buffer.getvalue())
        text = json.dumps(to_json(self, skip="arrays"), indent=1, allow_nan=False) + "\n"
        write_atomically(folder / "record.json", text.encode())

    @classmethod
    def load(cls, folder: Path | str) -> "Record":
        """Read the record in a run's folder."""
        folder = expand_user(folder)
        path = folder / "record.json"
        try:
            record = from_json(cls, _read(path), skip="arrays")
            record._check()
        except OSError as e:
            why = "there is no record.json in it" if isinstance(e, FileNotFoundError) else e.strerror or e
            raise UsageError(f"{folder} holds no finished run: {why}") from None
        except (ValueError, RecursionError) as e:
            raise UsageError(f"{path} is not a record of this version ({e}): {REMEDY}") from None
        sizes = {"3": 3, "T": len(record.stream.tasks), "C": len(record.stream.classes)}
        record.arrays = _Arrays(folder / "arrays.npz", sizes | {"R": len(record.matrix())})
        return record

    def _check(self) -> None:
        """Raise ValueError where values do not fit each other."""
        if self.format != FORMAT:
            raise ValueError(f"its format is {self.format}, expected {FORMAT}")
        if self.inference not in self.matrices or self.matrices.keys() != self.scores.keys():
            raise ValueError(f"it has no scores of its memory '{self.inference}'")
        if self.times.steps < 1 or not 0 <= self.times.seconds < LONGEST or (self.times.together or 1) < 1:
            raise ValueError(f"{self.times.steps} steps in {self.times.seconds} s are impossible")
        tasks, classes = self.stream.tasks, len(self.stream.classes)
        if not tasks or not all(0 <= c < classes for task in tasks for c in task):
            raise ValueError("its tasks have other classes than its stream")
        for memory, by_setting in self.matrices.items():
            if "class_il" not in by_setting or by_setting.keys() != self.scores[memory].keys():
                raise ValueError(f"the scores of {memory} are incomplete")
            for setting, rows in by_setting.items():
                if setting not in SETTINGS:
                    raise ValueError(f"there is no setting '{setting}'")
                if len(rows) not in (1, len(tasks)) or any(len(row) != len(tasks) for row in rows):
                    raise ValueError(f"the matrix of {memory} in {setting} does not have {len(tasks)} tasks")
                if not all(0 <= value <= 100 for row in rows for value in row):
                    raise ValueError(f"the matrix of {memory} in {setting} is not in percent")
                if "accuracy" not in self.scores[memory][setting]:
                    raise ValueError(f"{memory} has no accuracy in {setting}")
                if not all(-100 <= value <= 100 for value in self.scores[memory][setting].values()):
                    raise ValueError(f"the scores of {memory} in {setting} are not in percent")


def _read(path: Path) -> Any:
    if path.stat().st_size > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return parse_json(path.read_text("utf-8"))


def load_progress(folder: Path) -> Progress:
    """Read the progress of an unfinished run."""
    path = folder / "progress.json"
    try:
        progress = from_json(Progress, _read(path))
        done, total = progress.steps
        if not 0 <= done <= total or total < 1:
            raise ValueError(f"{done} of {total} steps are impossible")
    except (OSError, ValueError, RecursionError):
        raise UsageError(f"{path} is damaged: run the same command to resume") from None
    return progress


def load_all(folders: Sequence[Path]) -> dict[Path, Record]:
    """Load the records in folders. A damaged one among several is skipped with a warning."""
    found: dict[Path, Record] = {}
    for folder in folders:
        try:
            found[folder] = Record.load(folder)
        except UsageError as e:
            if len(folders) == 1:
                raise
            warnings.warn(f"skipped a run: {e}", RunWarning, stacklevel=3)
    return found


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays in a file, none if there is no file. They are unpacked on first use: most callers need none."""

    def __init__(self, path: Path, sizes: Mapping[str, int]) -> None:
        self._path, self._sizes = path, sizes
        try:
            self._packed = path.read_bytes() if path.exists() else None
        except OSError as e:
            raise UsageError(f"cannot read {path}: {e.strerror}") from None

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        if self._packed is None:
            return {}
        try:
            with ZipFile(BytesIO(self._packed)) as packed:
                if sum(member.file_size for member in packed.infolist()) > LARGEST_UNPACKED:
                    raise ValueError("too large")
            with np.load(BytesIO(self._packed), allow_pickle=False) as arrays:
                return {name: self._checked(name, array) for name, array in arrays.items()}
        except Exception as e:  # a damaged archive may raise anything
            raise UsageError(f"{self._path} is damaged ({type(e).__name__}: {e}): {REMEDY}") from None

    def _checked(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return the array, if it has the numbers and the shape that belong to its name."""
        axes, low, high = ARRAYS.get(name.split("/")[0], (None, -inf, inf))
        sizes = array.shape if axes is None else tuple(self._sizes.get(axis) for axis in axes)
        fits = array.ndim == len(sizes) and all(n in (None, m) for n, m in zip(sizes, array.shape, strict=True))
        if array.dtype.kind not in ("fiub" if axes is None else "fiu") or not fits:
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        if (array < low).any() or (array > high * (1 + 1e-3)).any():  # rounded; NaN is unknown
            raise ValueError(f"{name} is not from {low:g} to {high:g}")
        return array

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def find(root: Path) -> list[Path]:
    """Return the folders below `root`, and `root` itself, that hold a finished run."""
    return sorted(path.parent for path in root.rglob("record.json"))
