"""Look up and check all settings of a cell: stream, method, buffer, variant, and overrides."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from scommer.errors import UsageError, check_name, lookup
from scommer.methods import METHODS, Method
from scommer.methods.training import Training
from scommer.runs.settings import as_dict, coerce, setting_types

DEFAULT = "default"  # the presets of a stream that has none of its own
NONE: Mapping[str, Any] = MappingProxyType({})


@cache
def presets() -> dict[str, Any]:
    """Return the tables of presets.toml, and those that were registered."""
    return tomllib.loads((files("scommer.runs") / "presets.toml").read_text())


def register(more: str | Mapping[str, Any]) -> None:
    """Add presets in the form of presets.toml, as text or as a dictionary; a value that is given again wins.

    `register({"cell": {"s-cifar10": {"mine": {"lr": 0.03}}}})` is for a method "mine" on S-CIFAR10. A table of a new
    stream must set what would otherwise be fitted to its images: network, mean and std.
    """
    try:
        tables = tomllib.loads(more) if isinstance(more, str) else more
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"these presets are not TOML: {e}") from None
    known = presets()
    for kind, table in tables.items():
        check_name("table of presets", kind, known)
        if not isinstance(table, Mapping) or not all(isinstance(t, Mapping) for t in table.values()):
            raise UsageError(f"[{kind}] of these presets is {table!r}: expected tables, such as [{kind}.NAME]")
    for name in tables.get("variant", ()):
        check_name("variant", name, known["variant"])
    for stream, methods in tables.get("cell", {}).items():
        for method, cell in methods.items():
            for size, values in cell.items() if isinstance(cell, Mapping) else ():
                if isinstance(values, Mapping) and not str(size).isdigit():
                    raise UsageError(f"[cell.{stream}.{method}.{size}] is for no buffer: give its size, such as 200")
    _merge(known, tables)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping):
            if not isinstance(into.get(name), dict):
                into[name] = {}
            _merge(into[name], value)
        else:
            into[name] = value


def preset(stream: str, method: str, buffer: int, variant: str = "official") -> dict[str, Any]:
    """Return the settings that the presets give for a cell."""
    tables = presets()
    changes: dict[str, Any] = lookup("variant", variant, tables["variant"]).get(method, {})
    found: dict[str, Any] = {}
    for name in _lineage(stream):
        found |= {k: v for k, v in tables["stream"].get(name, {}).items() if k not in ("like", "variant")}
    found |= _method_preset(method) | _cell_preset(stream, method, buffer)
    for table in (changes, *(changes.get(name, {}) for name in _lineage(stream))):
        found |= {k: v for k, v in table.items() if not isinstance(v, dict)}
    return found


def earlier(method: str) -> dict[str, Any]:
    """Return the settings of a method that its presets had before, where they differ."""
    found: dict[str, Any] = presets()["earlier"].get(method, {})
    return found


def usual_variant(stream: str) -> str:
    """Return the default variant for a stream."""
    found: str = presets()["stream"].get(_lineage(stream)[-1], {}).get("variant", "official")
    return found


def has_variants(method: str) -> bool:
    """Return whether the variants of a method differ. Others have one, whatever it is called."""
    return any(method in tables for tables in presets()["variant"].values())


def _method_preset(method: str) -> dict[str, Any]:
    """Return the settings of a method that are the same for every stream."""
    found: dict[str, Any] = presets()["method"].get(method, {})
    return found


def _cell_preset(stream: str, method: str, buffer: int) -> dict[str, Any]:
    """Return the settings given only for this stream and method."""
    cell = _cell(stream, method)
    nearest = sorted(_buffer_sizes(cell), key=lambda size: abs(size - buffer))[:1]
    return {k: v for k, v in cell.items() if not isinstance(v, dict)} | (cell[str(nearest[0])] if nearest else {})


def _cell(stream: str, method: str) -> dict[str, Any]:
    """Return the table of a method for a stream, or for the nearest stream that it is like."""
    cells = presets()["cell"]
    return next((c[method] for name in reversed(_lineage(stream)) if method in (c := cells.get(name, {}))), {})


def _buffer_sizes(cell: dict[str, Any]) -> list[int]:
    """Return the buffers that a cell has separate values for."""
    return sorted(int(k) for k, v in cell.items() if isinstance(v, dict))


def buffers(stream: str, method: str) -> list[int] | None:
    """Return the buffers that the presets have separate values for; None without a preset."""
    cell = _cell(stream, method)
    return _buffer_sizes(cell) if cell else None


def has(stream: str) -> bool:
    """Return whether a stream has presets; without them, some settings are fitted to its images."""
    return stream in presets()["stream"]


def _lineage(stream: str) -> list[str]:
    """Return the streams that a stream is like, the furthest first, then itself; `default` if it has no preset."""
    if not has(stream):
        return [DEFAULT]
    like = presets()["stream"][stream].get("like")
    return [*(_lineage(like) if like else []), stream]


def resolve(
    stream: str, method: str, buffer: int, variant: str = "official", overrides: Mapping[str, Any] = NONE
) -> tuple[Method, Training]:
    """Return a method and its training, with the settings of the presets and then the overrides."""
    kinds: list[type] = [lookup("method", method, METHODS), Training]
    types_of = {name: (kind, hint) for kind in kinds for name, hint in setting_types(kind).items()}
    for name in {**_method_preset(method), **_cell_preset(stream, method, buffer), **overrides}:
        check_name(f"setting of {method}", name, types_of)
    given = {**preset(stream, method, buffer, variant), **overrides}
    chosen: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in given.items():
        if name in types_of:  # a stream's preset may have settings of other methods
            kind, hint = types_of[name]
            chosen[kind][name] = coerce(name, value, hint)
    made, training = (kind(**chosen[kind]) for kind in kinds)
    return made, training


def settings(
    stream: str, method: str, buffer: int | None, variant: str = "official", overrides: Mapping[str, Any] = NONE
) -> dict[str, Any]:
    """Return all settings of a cell by name; a method without replay has no buffer."""
    return as_dict(*resolve(stream, method, buffer or 0, variant, overrides))
