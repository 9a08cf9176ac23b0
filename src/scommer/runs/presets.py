"""From a cell (stream, method, buffer, variant) and overrides to settings, all resolved and checked."""

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


@cache
def presets() -> dict[str, Any]:
    """The tables of presets.toml."""
    return tomllib.loads((files("scommer.runs") / "presets.toml").read_text())


def register(more: str | Mapping[str, Any]) -> None:
    """Add presets in the form of presets.toml, as text or as a dictionary; a value that is given again wins.

    `register({"cell": {"s-cifar10": {"mine": {"lr": 0.03}}}})` is for a method "mine" on S-CIFAR10. A table of a new
    stream must set all that would otherwise follow its images: network, mean and std.
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
    """The settings that the presets hold for a cell."""
    tables = presets()
    found = dict(lookup("variant", variant, tables["variant"]).get(method, {}))
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
    kinds: list[type] = [lookup("method", method, METHODS), Training]
    types_of = {name: (kind, hint) for kind in kinds for name, hint in setting_types(kind).items()}
    for name in {**_of_cell(stream, method, buffer), **overrides}:
        check_name(f"setting of {method}", name, types_of)
    given = {**preset(stream, method, buffer, variant), **overrides}
    chosen: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in given.items():
        if name in types_of:  # a stream's preset may speak of what another method has
            kind, hint = types_of[name]
            chosen[kind][name] = coerce(name, value, hint)
    made, training = (kind(**chosen[kind]) for kind in kinds)
    return made, training


def settings(
    stream: str,
    method: str,
    buffer: int | None,
    variant: str = "official",
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """All settings of a cell by name; a method without replay has no buffer."""
    return as_dict(*resolve(stream, method, buffer or 0, variant, overrides))
