"""The facts in a record: typed values, and their form in JSON.

A field without a default is in every record. A field with the default None is absent from the records of versions
that did not write it yet, and stays absent when such a record is saved again.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ExperimentFacts:
    """The experiment that was asked for."""

    stream: str
    method: str
    buffer: int | None  # None: the method does not replay
    seed: int
    variant: str
    validation: float  # share of the training images that was scored instead of the test images
    given: dict[str, Any] | None = None  # the settings that the user gave, for a stream without presets


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """The stream that was learned."""

    name: str
    kind: str  # class-il or gcil
    data: str  # name of the data set
    image_shape: list[int] | None = None  # channels, height, width
    dtype: str | None = None  # of the images: uint8 or float32
    range: list[float] | None = None  # smallest and largest value of the images
    fingerprint: str  # hash of images, labels and order
    classes: list[str]  # class names
    tasks: list[list[int]]  # the classes of each task
    images: list[int] | None = None  # training images of each task


@dataclass(frozen=True, kw_only=True)
class CodeFacts:
    """The code that ran."""

    commit: str | None  # None: unknown
    dirty: bool | None  # whether it had uncommitted changes; None: unknown
    sources: str  # hash of the source files
    earlier: list[str] | None = None  # hashes of the sources that began the run, where the code changed since


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """The device that computed the run."""

    type: str  # cpu or cuda
    name: str
    threads: int | None = None  # of a CPU
    precision: str | None = None  # of convolutions: bf16, tf32 or fp32


@dataclass(frozen=True, kw_only=True)
class Times:
    """When the run took place, and how long it took."""

    started: str
    finished: str
    seconds: float
    steps: int
    together: int | None = None  # runs that shared the device; None: unknown, counted as 1


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of an unfinished run, in its progress.json."""

    name: str
    steps: list[int]  # done, and in all
    saved: int  # steps in the last checkpoint
    task: int
    epoch: int
    tasks: int
    epochs: int
    scores: dict[str, list[float]]  # the last row of each memory
    failure: str | None = None  # why it failed


def parse_json(text: str) -> Any:
    """Return the values of a JSON text; a ValueError for numbers that no run writes and no reader expects."""

    def refuse(constant: str) -> float:
        raise ValueError(f"it holds {constant}")

    def whole(digits: str) -> int:
        return int(digits) if len(digits) < 20 else int(refuse(f"{digits[:20]}…"))

    def real(digits: str) -> float:
        return found if isfinite(found := float(digits)) else refuse(digits)

    return json.loads(text, parse_constant=refuse, parse_int=whole, parse_float=real)


def to_json(facts: Any, skip: str = "") -> dict[str, Any]:
    """Return the fields of a dataclass as plain values, without those that are absent."""
    held = {f.name: getattr(facts, f.name) for f in fields(facts) if f.name != skip}
    absent = {name for name in _optional(type(facts)) if held[name] is None}
    return {name: to_json(v) if is_dataclass(v) else v for name, v in held.items() if name not in absent}


def from_json(kind: type[T], values: Any, skip: str = "", path: str = "") -> T:
    """Return a dataclass from plain values; a ValueError says which field is missing, unknown or of another type."""
    if not isinstance(values, dict):
        raise ValueError(f"{path or 'the content'} is a {type(values).__name__}, expected an object")
    types = {name: hint for name, hint in get_type_hints(kind).items() if name != skip}
    wrong = sorted((types.keys() - _optional(kind) - values.keys()) | (values.keys() - types.keys()))
    if wrong:
        names = ", ".join(f"{path}{name}" for name in wrong[:3])
        raise ValueError(f"missing or unknown: {names}{' …' if wrong[3:] else ''}")
    return kind(**{name: _read(types[name], value, f"{path}{name}") for name, value in values.items()})


def _read(hint: Any, value: Any, path: str) -> Any:
    if is_dataclass(hint):
        return from_json(hint, value, path=f"{path}.")  # type: ignore[arg-type]
    if not _fits(value, hint):
        expected = hint if get_args(hint) else hint.__name__
        raise ValueError(f"{path} is {value!r:.40}, expected {expected}")
    return value


def _optional(kind: Any) -> set[str]:
    """Return the fields that may be absent."""
    return {f.name for f in fields(kind) if f.default is None}


PLAIN: dict[Any, set[type]] = {float: {float, int}, int: {int}, str: {str}, bool: {bool}, NoneType: {NoneType}}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value from JSON has a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(_fits(value, option) for option in arguments)
    if origin is list:
        (item,) = arguments
        if item in PLAIN:  # all at once: accuracy matrices are most of a record
            return isinstance(value, list) and set(map(type, value)) <= PLAIN[item]
        return isinstance(value, list) and all(_fits(v, item) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(v, arguments[1]) for v in value.values())
    return hint is Any or type(value) in PLAIN[hint]
