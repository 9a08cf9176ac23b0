"""Which runs are meant: folders, patterns, and conditions on what was set."""

from collections.abc import Iterable
from glob import glob
from pathlib import Path
from typing import Any

from scommer.errors import UsageError, check_name
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.record import Record, find
from scommer.runs.settings import parse, written

PRESET = "preset"


def load_records(paths: Iterable[Path | str] | Path | str) -> list[Record]:
    """The finished runs in a folder, or in several, and below them, each once.

    A path may be a pattern, and may end in conditions, all of which a run must meet: `runs/*-er-*`,
    `runs@buffer=200@sparse=false`, or `runs@preset` for runs with nothing set beside the preset. They name
    a setting, or stream, method, buffer, seed, variant, validation or precision.
    """
    records: dict[Path, Record] = {}
    for path in [paths] if isinstance(paths, str | Path) else paths:
        where, conditions = _split(Path(path))
        found = {folder.resolve(): Record.load(folder) for folder in _folders(Path(where))}
        known = {name for r in found.values() for name in _facts(r)}
        for condition in conditions:
            found = _select(found, condition, where, known)
            where += f"@{condition}"
        records |= found
    return list(records.values())


def places(path: Path) -> list[Path]:
    """The folder that is meant, or those that match a pattern; none where there are conditions, or nothing is there."""
    where, conditions = _split(path)
    return [] if conditions else _matching(Path(where))


def unfinished(paths: Iterable[Path]) -> list[Path]:
    """The runs in these folders and below them that were begun and not finished; conditions speak of others."""
    begun = sorted({p.parent for path in paths for place in places(path) for p in place.rglob("progress.json")})
    return [folder for folder in begun if not (folder / "record.json").exists()]


def _matching(path: Path) -> list[Path]:
    return [path] if path.exists() else [Path(match) for match in sorted(glob(str(path)))]  # noqa: PTH207


def _split(path: Path) -> tuple[str, list[str]]:
    """A path and its conditions: of a path that has the sign in it, as much as there is."""
    pieces = str(path.expanduser()).split("@")
    for n in range(len(pieces), 1, -1):
        where = "@".join(pieces[:n])
        if Path(where).exists() or glob(where):  # noqa: PTH207 - also an absolute one
            return where, pieces[n:]
    return pieces[0], pieces[1:]


def _folders(path: Path) -> list[Path]:
    if path.name == "record.json":
        path = path.parent
    below = _matching(path)
    found = [folder for each in below for folder in find(each)]
    if not found:
        why = "there is no record.json in it or below it" if below else "there is no such folder"
        raise UsageError(f"{path} holds no finished run: {why}")
    return found


def _facts(record: Record) -> dict[str, Any]:
    facts = {name: value for name, value in vars(record.experiment).items() if name != "given"}
    return record.settings | facts | {"precision": record.device.precision}


def _select(found: dict[Path, Record], condition: str, where: str, known: set[str]) -> dict[Path, Record]:
    """Those runs that meet a condition; an error that tells what there is where none does."""
    if condition == PRESET:
        chosen = {folder: r for folder, r in found.items() if not changes(r)}
        there = "all have changes, such as " + changes(next(iter(found.values())))
    elif "=" not in condition:
        raise UsageError(f"'@{condition}' is not a condition: write @name=value, or @preset")
    else:
        name, value = parse(condition)
        check_name("setting of these runs", name, known)
        held = {folder: facts[name] for folder, r in found.items() if name in (facts := _facts(r))}
        text = condition.partition("=")[2].strip()  # a name may look like a number
        chosen = {folder: found[folder] for folder, v in held.items() if _same(v, value) or v == text}
        values = sorted({written(v) for v in held.values()})
        there = f"there {name} is {' or '.join(values)}" if held else f"they have no {name}"
    if not chosen:
        raise UsageError(f"no run in {where} meets @{condition}: {there}")
    return chosen


def _same(held: Any, wanted: Any) -> bool:
    """Whether a setting has a value, as `--set` would take it."""
    if isinstance(wanted, str):
        return written(held).lower() == wanted.lower()
    return isinstance(held, bool) == isinstance(wanted, bool) and held == wanted


def changed(record: Record) -> dict[str, Any]:
    """The settings in which a run differs from its preset, or that were given where there is none.

    All of a method that is not known here, unless the record tells which were given.
    """
    e = record.experiment
    if e.given is not None:
        return {name: value for name, value in record.settings.items() if name in e.given}
    if e.method not in METHODS:
        return record.settings
    usual = presets.settings(e.stream, e.method, e.buffer, e.variant)
    return {name: value for name, value in record.settings.items() if usual.get(name) != value}


def changes(record: Record) -> str:
    """What a run was asked for beside its preset, in words."""
    e = record.experiment
    found = [f"{name}={written(value)}" for name, value in changed(record).items()]
    found += [f"variant={e.variant}"] if e.variant != "official" else []
    return ", ".join(found + ([f"validation={e.validation}"] if e.validation else []))
