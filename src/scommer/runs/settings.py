"""Settings: parsed from text, checked against their types, written as text."""

import json
import math
import re
import tomllib
import types
from dataclasses import asdict, fields
from numbers import Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from scommer.errors import UsageError
from scommer.methods import Method
from scommer.methods.training import Training


def setting_types(kind: type) -> dict[str, Any]:
    """Return the settings of a dataclass and their types."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def as_dict(method: Method, training: Training) -> dict[str, Any]:
    """Return all settings by name, as plain values."""
    everything = {**asdict(training), **asdict(method)}  # type: ignore[call-overload]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in sorted(everything.items())}


def written(value: Any) -> str:
    """Return a setting's value as `--set` takes it."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def parse(assignment: str) -> tuple[str, Any]:
    """Read `name=value` from the command line: values as in TOML, words also without quotes."""
    name, sign, text = assignment.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"'{assignment}' is not a setting: write name=value, for example r=0.1")
    toml = re.sub(r"(?<![\w.])\.(?=\d)", "0.", text)  # TOML does not allow .5
    if toml.strip() in ("True", "False"):
        toml = toml.lower()
    try:
        (value,) = tomllib.loads(f"value = {toml}").values()
    except (ValueError, RecursionError):  # also for more digits, brackets or lines than a value has
        value = text.strip()
    return name.strip(), value


def coerce(name: str, value: Any, hint: Any) -> Any:
    """Return the value as the setting's type, or raise an error that says what is expected."""
    for option in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        match = _as(value, option)
        if match is not None or (option is types.NoneType and value in (None, "none", "None")):
            return match
    raise UsageError(f"{name} = {value!r} is invalid: expected {describe(hint)}")


def _as(value: Any, hint: Any) -> Any:
    """Return the value as this type, or None if it has another."""
    number = not isinstance(value, bool) and isinstance(value, Real) and _finite(value)
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


def _finite(value: Any) -> bool:
    """Return whether a float can hold a number."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of more than 300 digits
        return False


def describe(hint: Any) -> str:
    """Return the values that a type allows, in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list such as [0.9, 0.8]"
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
    return names.get(hint, "none")
