"""From a cell (stream, method, buffer, variant) and overrides to settings, all resolved and checked."""

import json
import math
import re
import tomllib
import types
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from importlib.resources import files
from numbers import Real
from types import MappingProxyType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from scommer.errors import UsageError, unknown
from scommer.methods import METHODS, Method
from scommer.training import Training

VARIANTS = ("official", "paper")
DEFAULT = "default"  # the presets of a stream that has none of its own


@cache
def presets() -> dict[str, Any]:
    """The tables of presets.toml."""
    return tomllib.loads((files("scommer") / "presets.toml").read_text())


def preset(stream: str, method: str, buffer: int, variant: str = "official") -> dict[str, Any]:
    """The settings that the presets hold for a cell."""
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    tables = presets()
    found = dict(tables["variant"][variant].get(method, {}))
    for name in _lineage(stream):
        found |= {k: v for k, v in tables["stream"].get(name, {}).items() if k != "like"}
    return found | _of_cell(stream, method, buffer)


def _of_cell(stream: str, method: str, buffer: int) -> dict[str, Any]:
    """What is said of this method alone."""
    cell = _cell(stream, method)
    nearest = sorted(_sizes(cell), key=lambda size: abs(size - buffer))[:1]
    return {k: v for k, v in cell.items() if not isinstance(v, dict)} | (cell[str(nearest[0])] if nearest else {})


def _cell(stream: str, method: str) -> dict[str, Any]:
    """What a method's presets hold for a stream, or else for the nearest one that it is like."""
    cells = presets()["cell"]
    return next((c[method] for name in reversed(_lineage(stream)) if method in (c := cells.get(name, {}))), {})


def _sizes(cell: dict[str, Any]) -> list[int]:
    """The buffers for which a cell holds values of their own."""
    return sorted(int(k) for k, v in cell.items() if isinstance(v, dict))


def buffers(stream: str, method: str) -> str:
    """For which buffers the presets hold values of their own: "200, 500", "any", or "–" for usual values."""
    cell = _cell(stream, method)
    return ", ".join(map(str, _sizes(cell))) or ("any" if cell else "–")


def has(stream: str) -> bool:
    """Whether there are presets for a stream; without, some settings follow its images."""
    return stream in presets()["stream"]


def _lineage(stream: str) -> list[str]:
    """A stream and those it is like, from the furthest to itself; `default` for one without a preset."""
    if not has(stream):
        return [DEFAULT]
    like = presets()["stream"][stream].get("like")
    return [*(_lineage(like) if like else []), stream]


def resolve(
    stream: str,
    method: str,
    buffer: int,
    variant: str = "official",
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Method, Training]:
    """A method and its training: the presets' settings, then the overrides."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    kinds: list[type] = [METHODS[method], Training]
    types_of = {name: (kind, hint) for kind in kinds for name, hint in setting_types(kind).items()}
    for name in {**_of_cell(stream, method, buffer), **overrides}:
        if name not in types_of:
            raise unknown(f"setting of {method}", name, types_of)
    given = {**preset(stream, method, buffer, variant), **overrides}
    chosen: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in given.items():
        if name in types_of:  # a stream's preset may speak of what another method has
            kind, hint = types_of[name]
            chosen[kind][name] = coerce(name, value, hint)
    made, training = (kind(**chosen[kind]) for kind in kinds)
    return made, training


def setting_types(kind: type) -> dict[str, Any]:
    """The settings of a dataclass and their types."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def as_dict(method: Method, training: Training) -> dict[str, Any]:
    """All settings by name, as plain values."""
    everything = {**asdict(training), **asdict(method)}  # type: ignore[call-overload]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in sorted(everything.items())}


def settings(
    stream: str,
    method: str,
    buffer: int | None,
    variant: str = "official",
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """All settings of a cell by name; a method without replay has no buffer."""
    return as_dict(*resolve(stream, method, buffer or 0, variant, overrides))


def written(value: Any) -> str:
    """A setting's value as `--set` takes it."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def parse(assignment: str) -> tuple[str, Any]:
    """`name=value` from the command line; values are written as in TOML, words without quotes too."""
    name, sign, text = assignment.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"'{assignment}' is not a setting: write name=value, for example r=0.1")
    text = re.sub(r"(?<![\w.])\.(?=\d)", "0.", text)  # .5, which TOML does not know
    if text.strip() in ("True", "False"):
        text = text.lower()
    try:
        return name.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), text.strip()


def coerce(name: str, value: Any, hint: Any) -> Any:
    """The value as the setting's type, or an error that says what is expected."""
    for option in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        match = _as(value, option)
        if match is not None or (option is types.NoneType and value in (None, "none", "None")):
            return match
    raise UsageError(f"{name} = {value!r} does not fit: expected {_describe(hint)}")


def _as(value: Any, hint: Any) -> Any:
    """The value as this one type, None where it is not."""
    number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if get_origin(hint) is Literal:
        return value if value in get_args(hint) else None
    if get_origin(hint) is tuple:
        items = [_as(v, get_args(hint)[0]) for v in value] if isinstance(value, list | tuple) else []
        return tuple(items) if items and None not in items else None
    if hint is float:
        return float(value) if number else None
    if hint is int:
        return int(value) if number and value == int(value) else None
    return value if isinstance(value, hint) else None


def _describe(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list such as [0.9, 0.8]"
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
    return names.get(hint, "none")
