"""Which runs are meant: folders, patterns, and conditions on what was set."""

from collections.abc import Iterable
from glob import glob
from pathlib import Path
from typing import Any

from scommer import presets
from scommer.errors import UsageError, unknown
from scommer.methods import METHODS
from scommer.record import Record, find

PRESET = "preset"


def load(paths: Iterable[Path]) -> list[Record]:
    """The finished runs in these folders and below them, each once.

    A path may be a pattern, and may end in conditions: `runs/*-er-*`, `runs@buffer=200@sparse=false`, or
    `runs@preset` for those in which nothing was set beside the preset.
    """
    records: dict[Path, Record] = {}
    for path in paths:
        where, *conditions = (str(path),) if path.exists() else str(path).split("@")
        found = {folder.resolve(): Record.load(folder) for folder in _folders(Path(where))}
        for condition in conditions:
            found = _select(found, condition, where)
        records |= found
    return list(records.values())


def _folders(path: Path) -> list[Path]:
    exists = path.exists()
    below = [path] if exists else [Path(match) for match in sorted(glob(str(path)))]  # noqa: PTH207 - also an absolute one
    found = [folder for each in below for folder in find(each)]
    if not found:
        why = "there is no record.json in it or below it" if exists or below else "there is no such folder"
        raise UsageError(f"{path} holds no finished run: {why}")
    return found


def _select(found: dict[Path, Record], condition: str, where: str) -> dict[Path, Record]:
    """Those runs that meet a condition; an error that tells what there is where none does."""
    if condition == PRESET:
        chosen = {folder: r for folder, r in found.items() if not changes(r)}
        there = "each has changes, such as " + changes(next(iter(found.values())))
    else:
        name, value = presets.parse(condition)
        held = {folder: facts[name] for folder, r in found.items() if name in (facts := r.settings | r.experiment)}
        if not held:
            raise unknown("setting of these runs", name, {k for r in found.values() for k in r.settings | r.experiment})
        chosen = {folder: found[folder] for folder, v in held.items() if v == value or presets.written(v) == str(value)}
        there = f"there {name} is {', '.join(sorted({presets.written(v) for v in held.values()}))}"
    if not chosen:
        raise UsageError(f"no run in {where} meets {condition}: {there}")
    return chosen


def changed(record: Record) -> dict[str, Any]:
    """The settings in which a run differs from its preset; all of a method that is not known here."""
    e = record.experiment
    if e["method"] not in METHODS:
        return record.settings
    usual = presets.as_dict(*presets.resolve(e["stream"], e["method"], e["buffer"] or 0, e["variant"]))
    return {name: value for name, value in record.settings.items() if usual.get(name) != value}


def changes(record: Record) -> str:
    """What a run was asked for beside its preset, in words."""
    e = record.experiment
    found = [f"{name}={presets.written(value)}" for name, value in changed(record).items()]
    found += [f"variant={e['variant']}"] if e["variant"] != "official" else []
    return ", ".join(found + ([f"validation={e['validation']}"] if e["validation"] else []))
