"""Select runs by folders, patterns and conditions on their settings."""

from collections.abc import Iterable
from functools import cache
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any

from scommer.errors import UsageError, check_name
from scommer.files import expand_user
from scommer.methods import METHODS, Method
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.runs.experiment import without_removed
from scommer.runs.record import Record, find, load_all
from scommer.runs.settings import as_dict, parse, written

PRESET = "preset"


class Records(list[Record]):
    """A list of records."""

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each run: its settings, scores and times."""
        from scommer.analysis.rows import rows_of

        try:
            pandas = import_module("pandas")
        except ImportError:
            raise UsageError("pandas is not installed: pip install pandas") from None
        return pandas.DataFrame(rows_of(self))


def load_records(paths: Iterable[Path | str] | Path | str) -> Records:
    """Load the finished runs in one or several folders and below them, each once; `.to_frame()` is a DataFrame.

    A path may be a pattern and may end in conditions, all of which a run must meet: `runs/*-er-*`,
    `runs@buffer=200@sparse=false`, or `runs@preset` for runs without changes to their preset, today's or an earlier
    one. A condition names a setting, or stream, method, buffer, seed, variant, validation or precision.
    """
    records: dict[Path, Record] = {}
    for path in [paths] if isinstance(paths, str | Path) else paths:
        where, conditions = _split(Path(path))
        loaded = load_all(_run_folders(Path(where)))
        found = {folder.resolve(): record for folder, record in loaded.items()}
        if not found:
            raise UsageError(f"{where} holds no run that can be read")
        known = {name for r in found.values() for name in _facts(r)}
        for condition in conditions:
            found = _select(found, condition, where, known)
            where += f"@{condition}"
        records |= found
    return Records(records.values())


def places(path: Path) -> list[Path]:
    """Return the folders that a path or pattern names; none for a path with conditions."""
    where, conditions = _split(path)
    return [] if conditions else _matching(Path(where))


def without_conditions(path: Path) -> Path:
    """Return the path or pattern itself."""
    return Path(_split(path)[0])


def unfinished(paths: Iterable[Path]) -> list[Path]:
    """Return the folders of runs that were started and not finished; paths with conditions have none."""
    started = sorted({p.parent for path in paths for place in places(path) for p in place.rglob("progress.json")})
    return [folder for folder in started if not (folder / "record.json").exists()]


def _matching(path: Path) -> list[Path]:
    return [path] if path.exists() else [Path(match) for match in sorted(glob(str(path)))]  # noqa: PTH207


def _split(path: Path) -> tuple[str, list[str]]:
    """Split a path from its conditions. A folder's name may contain @: the longest path that exists is the path."""
    pieces = str(expand_user(path)).split("@")
    for n in range(len(pieces), 1, -1):
        where = "@".join(pieces[:n])
        if Path(where).exists() or glob(where):  # noqa: PTH207 - patterns may be absolute
            return where, pieces[n:]
    return pieces[0], pieces[1:]


def _run_folders(path: Path) -> list[Path]:
    if path.name == "record.json":
        path = path.parent
    roots = _matching(path)
    found = [folder for root in roots for folder in find(root)]
    if not found:
        why = "there is no record.json in it or below it" if roots else "there is no such folder"
        raise UsageError(f"{path} holds no finished run: {why}")
    return found


def _facts(record: Record) -> dict[str, Any]:
    """Return everything that a condition may name."""
    experiment = {name: value for name, value in vars(record.experiment).items() if name != "given"}
    return settings_of(record) | experiment | {"precision": record.device.precision}


def _select(found: dict[Path, Record], condition: str, where: str, known: set[str]) -> dict[Path, Record]:
    """Return the runs that meet a condition; if there are none, the error says what there is."""
    if condition == PRESET:
        chosen = {folder: r for folder, r in found.items() if _has_preset(r)}
        held = f"all have changes, for example {changes(next(iter(found.values())))}"
    elif "=" not in condition:
        raise UsageError(f"'@{condition}' is not a condition: write @name=value, or @preset")
    else:
        name, value = parse(condition)
        check_name("setting of these runs", name, known)
        values = {folder: facts[name] for folder, r in found.items() if name in (facts := _facts(r))}
        text = condition.partition("=")[2].strip()  # a name may look like a number
        chosen = {folder: found[folder] for folder, v in values.items() if _equals(v, value) or v == text}
        options = sorted({written(v) for v in values.values()})
        held = f"their {name} is {' or '.join(options)}" if values else f"they have no {name}"
    if not chosen:
        raise UsageError(f"no run in {where} meets @{condition}: {held}")
    return chosen


def _equals(held: Any, wanted: Any) -> bool:
    """Return whether a setting has a value, written as for `--set`."""
    if isinstance(wanted, str):
        return written(held).lower() == wanted.lower()
    return isinstance(held, bool) == isinstance(wanted, bool) and held == wanted


def settings_of(record: Record) -> dict[str, Any]:
    """Return all settings of a run. A setting that its version did not have has today's default."""
    kind = METHODS.get(record.experiment.method)
    settings = without_removed(record.settings)
    return settings if kind is None else _defaults(kind) | settings  # type: ignore[arg-type]


@cache
def _defaults(kind: type[Method]) -> dict[str, Any]:
    return as_dict(kind(), Training())


def changed(record: Record) -> dict[str, Any]:
    """Return the settings in which a run differs from its preset or, without a preset, those that the user gave.

    For a method that is not loaded, and without a note of what was given, these are all settings.
    """
    e, settings = record.experiment, settings_of(record)
    if e.given is not None:
        return {name: value for name, value in settings.items() if name in e.given}
    if e.method not in METHODS:
        return settings
    preset = presets.settings(e.stream, e.method, e.buffer, e.variant)
    return {name: value for name, value in settings.items() if preset.get(name) != value}


def _has_preset(record: Record) -> bool:
    e = record.experiment
    return changes(record) in ("", ", ".join(_words(presets.earlier(e.method))) if presets.has(str(e.stream)) else "")


def changes(record: Record) -> str:
    """Return the changes to a run's preset in words."""
    e = record.experiment
    found = _words(changed(record))
    found += [f"variant={e.variant}"] if e.variant != presets.usual_variant(e.stream) else []
    return ", ".join(found + ([f"validation={e.validation}"] if e.validation else []))


def _words(settings: dict[str, Any]) -> list[str]:
    return [f"{name}={written(value)}" for name, value in settings.items()]
