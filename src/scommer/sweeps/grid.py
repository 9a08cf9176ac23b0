"""A grid of experiments, from the command line or a TOML file."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from scommer.errors import UsageError, check_name, lookup
from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.runs.experiment import Experiment
from scommer.runs.settings import parse, setting_types
from scommer.streams import STREAMS
from scommer.sweeps.ranges import numbers

MOST = 100_000  # experiments; more are a slip of the pen
KEYS = ("stream", "method", "buffer", "seeds", "variant", "validation", "set", "search")
SPLIT = re.compile(r",(?![^\[]*\])(?=(?:[^\"']*[\"'][^\"']*[\"'])*[^\"']*$)")  # commas outside brackets and quotes


@dataclass(frozen=True)
class Grid:
    """All combinations of these values. A setting counts for the methods that have it."""

    streams: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("scommer",)
    buffers: tuple[int, ...] = (200,)
    seeds: tuple[int, ...] = (0,)
    variant: str = ""
    validation: float = 0.0
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # NAME, or METHOD.NAME for one method only
    search: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # ranges, for a search; names likewise

    def __post_init__(self) -> None:
        for stream in self.streams:
            check_name("stream", stream, STREAMS)
        for method in self.methods:
            check_name("method", method, METHODS)
        for name in (*self.settings, *self.search):
            self._check_setting(name)

    def _check_setting(self, name: str) -> None:
        method, dot, setting = name.rpartition(".")
        if dot:
            check_name("method of this sweep", method, self.methods)
        known = {s for m in ([method] if dot else self.methods) for s in settings_of(m)}
        check_name(f"setting of {method if dot else ' and '.join(self.methods)}", setting, known)

    def chosen_for(self, method: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is given for a method, by the plain names of its settings; its own values win."""
        common = {name: v for name, v in values.items() if "." not in name and name in settings_of(method)}
        return common | {n.partition(".")[2]: v for n, v in values.items() if n.startswith(f"{method}.")}

    def cells(self) -> Iterator[tuple[str, str, int]]:
        """Yield each stream, method and buffer; a method without replay has one buffer."""
        if not self.streams:
            raise UsageError("no stream was given: name one from `scommer list`")
        for stream, method in product(self.streams, self.methods):
            for buffer in self.buffers if METHODS[method].draws else self.buffers[:1]:
                yield stream, method, buffer

    def experiments(self) -> list[Experiment]:
        """Return all combinations, one seed after the other."""
        made: list[Experiment] = []
        for seed, (stream, method, buffer) in product(self.seeds, self.cells()):
            given = self.chosen_for(method, self.settings)
            for values in product(*given.values()):
                settings = dict(zip(given, values, strict=True))
                made.append(Experiment(stream, method, buffer, seed, self.variant, self.validation, settings))
                if len(made) > MOST:
                    raise UsageError(f"this grid has more than {MOST:,} runs: give fewer values, or search with optuna")
        return made


def settings_of(method: str) -> set[str]:
    """Return the names of a method's settings and of those of training."""
    return {*setting_types(lookup("method", method, METHODS)), *setting_types(Training)}


def parse_setting(assignment: str) -> tuple[str, tuple[Any, ...]]:
    """Read `lr=0.03,0.1`: a setting and its values. Commas in brackets and quotes belong to a value."""
    name, sign, text = assignment.partition("=")
    if not sign:
        parse(assignment)  # raises the error
    return name.strip(), tuple(parse(f"{name}={part}")[1] for part in SPLIT.split(text))


def read_grid(path: Path) -> dict[str, Any]:
    """Return the fields of a Grid that a TOML file gives.

    Its keys are those of the command line; a list has several values: `method = ["scommer", "er"]`, `seeds = "0-4"`,
    and settings in the table `[set]`, or `[set.METHOD]` for one method. `[search]` has ranges, for `--search`.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from None
    except ValueError as e:  # neither TOML nor text
        raise UsageError(f"{path} is not TOML: {e}") from None
    for key in content:
        check_name(f"key in {path}", key, KEYS)
    try:
        return _fields(content)
    except UsageError as e:
        raise UsageError(f"{path}: {e}") from None


def _fields(content: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, name, kind in (("stream", "streams", str), ("method", "methods", str), ("buffer", "buffers", int)):
        if key in content:
            found[name] = _several(key, content[key], kind)
    if isinstance(seeds := content.get("seeds"), str):
        found["seeds"] = tuple(numbers(seeds))
    elif seeds is not None:
        found["seeds"] = _several("seeds", seeds, int)
    for key, kinds, expected in (("variant", (str,), "a word"), ("validation", (int, float), "a number")):
        if key in content:
            if not isinstance(content[key], kinds) or isinstance(content[key], bool):
                raise UsageError(f"{key} = {content[key]!r} is invalid: expected {expected}")
            found[key] = content[key]
    settings = {name: tuple(v) if isinstance(v, list) else (v,) for name, v in _flat("set", content).items()}
    if empty := [name for name, values in settings.items() if not values]:
        raise UsageError(f"{empty[0]} = [] has no values: give some, or leave it out")
    return found | {"settings": settings, "search": _flat("search", content)}


def _flat(key: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a table, those in a method's own table as METHOD.NAME."""
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(f"{key} = {table!r} is invalid: expected a table, [{key}]")
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and name in METHODS:
            found |= {f"{name}.{setting}": v for setting, v in value.items()}
        else:
            found[name] = value
    return found


def _several(key: str, value: Any, kind: type) -> tuple[Any, ...]:
    """Return one value or several, all of a type."""
    values = value if isinstance(value, list) else [value]
    for v in values:
        if not isinstance(v, kind) or isinstance(v, bool):
            raise UsageError(f"{key} has {v!r}: expected {'names' if kind is str else 'whole numbers'}")
    if not values:
        raise UsageError(f"{key} = [] has no values: give some, or leave it out")
    return tuple(values)
