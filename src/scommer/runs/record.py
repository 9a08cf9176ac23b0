"""The record of a run: record.json and arrays.npz, read, written and found."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from scommer.errors import UsageError, lookup
from scommer.files import write_atomically
from scommer.runs.facts import CodeFacts, DeviceFacts, ExperimentFacts, StreamFacts, Times, from_json, to_json

FORMAT = 1
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
    inference: str  # the memory that answers
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
        """Return R[t, i] of a memory, by default the one that answers."""
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
        """The time of one learner's step: runs side by side share the time."""
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
        folder = Path(folder)
        path = folder / "record.json"
        try:
            record = from_json(cls, json.loads(path.read_text()), skip="arrays")
            if record.format != FORMAT:
                raise ValueError(f"its format is {record.format}, expected {FORMAT}")
            if record.inference not in record.matrices.keys() & record.scores.keys():
                raise ValueError(f"it has no scores of its memory '{record.inference}'")
        except OSError:
            raise UsageError(f"{folder} holds no finished run: there is no record.json in it") from None
        except ValueError as e:
            raise UsageError(f"{path} is not a record of this version ({e}): {REMEDY}") from None
        record.arrays = _Arrays(folder / "arrays.npz")
        return record


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays in a file, none if there is no file. They are unpacked on first use: most callers need none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._packed = path.read_bytes() if path.exists() else None
        except OSError as e:
            raise UsageError(f"cannot read {path}: {e.strerror}") from None

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        if self._packed is None:
            return {}
        try:
            with np.load(BytesIO(self._packed), allow_pickle=False) as arrays:
                return dict(arrays)
        except (ValueError, EOFError, BadZipFile, OSError) as e:
            raise UsageError(f"{self._path} is damaged ({type(e).__name__}): {REMEDY}") from None

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def find(root: Path) -> list[Path]:
    """Return the folders below `root`, and `root` itself, that hold a finished run."""
    return sorted(path.parent for path in root.rglob("record.json"))
