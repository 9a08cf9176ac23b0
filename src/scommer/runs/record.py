"""What a run leaves behind: record.json and arrays.npz, read, written and found."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from scommer.errors import UsageError, lookup
from scommer.files import write_atomically

FORMAT = 1
MEND = "remove its folder, or run it again with --fresh"


@dataclass(eq=False)  # arrays do not compare to one truth value
class Record:
    """One run: what was asked, what it ran on, and every accuracy matrix.

    `matrices[memory]["class_il"]` is R[t, i] in percent, row t after task t; `untrained` the row before
    any training; `scores[memory]["class_il"]` the measures that follow from R.
    """

    name: str
    experiment: dict[str, Any]
    settings: dict[str, Any]
    stream: dict[str, Any]
    inference: str  # the memory that answers
    matrices: dict[str, dict[str, list[list[float]]]]
    untrained: dict[str, list[float]]
    scores: dict[str, dict[str, dict[str, float]]]
    code: dict[str, Any]
    versions: dict[str, str]
    device: dict[str, Any]
    times: dict[str, Any]
    format: int = FORMAT
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def matrix(self, memory: str | None = None, setting: str = "class_il") -> np.ndarray:
        """R[t, i] of a memory (the one that answers, unless named)."""
        return np.array(self._of(self.matrices, memory, setting))

    def accuracy(self, memory: str | None = None, setting: str = "class_il") -> float:
        """Mean accuracy over tasks at the end."""
        found: float = self._of(self.scores, memory, setting)["accuracy"]
        return found

    def _of(self, values: Mapping[str, Mapping[str, Any]], memory: str | None, setting: str) -> Any:
        of_memory = lookup(f"memory of {self.name}", memory or self.inference, values)
        return lookup(f"setting of {self.name}", setting, of_memory)

    @property
    def step_ms(self) -> float:
        """How long a step of one learner took: runs side by side share the time."""
        t = self.times
        return float(1000 * t["seconds"] / t["steps"] / t.get("together", 1))  # early records do not tell

    def save(self, folder: Path) -> None:
        """Writes arrays.npz, then record.json: a folder with a record is complete."""
        buffer = BytesIO()
        np.savez_compressed(buffer, **self.arrays)  # type: ignore[arg-type]
        write_atomically(folder / "arrays.npz", buffer.getvalue())
        plain = {k: v for k, v in asdict(self).items() if k != "arrays"}
        write_atomically(folder / "record.json", (json.dumps(plain, indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, folder: Path | str) -> "Record":
        """Reads a run folder."""
        folder = Path(folder)
        path = folder / "record.json"
        try:
            values = json.loads(path.read_text())
            wrong = sorted(set(values) ^ {f.name for f in fields(cls)} - {"arrays"})
            if wrong:
                raise ValueError(f"missing or unknown: {', '.join(wrong[:3])}{' …' if wrong[3:] else ''}")
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']}, not {FORMAT}")
            made = cls(**values)
        except OSError:
            raise UsageError(f"{folder} holds no finished run: there is no record.json in it") from None
        except (ValueError, TypeError) as e:
            raise UsageError(f"{path} is not a record of this version ({e}): {MEND}") from None
        made.arrays = _Arrays(folder / "arrays.npz")
        return made


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays in a file, if there is one; they are unpacked for whoever asks for one, and most need none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._packed = path.read_bytes() if path.exists() else None
        except OSError as e:
            raise UsageError(f"{path} cannot be read: {e.strerror}") from None

    @cached_property
    def _held(self) -> dict[str, np.ndarray]:
        if self._packed is None:
            return {}
        try:
            with np.load(BytesIO(self._packed), allow_pickle=False) as arrays:
                return dict(arrays)
        except (ValueError, EOFError, BadZipFile, OSError) as e:
            raise UsageError(f"{self._path} is damaged ({type(e).__name__}): {MEND}") from None

    def __getitem__(self, name: str) -> np.ndarray:
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def find(root: Path) -> list[Path]:
    """All folders below root (or root itself) that hold a finished run."""
    return sorted(path.parent for path in root.rglob("record.json"))
