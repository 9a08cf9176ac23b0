"""Registries: the methods, networks and streams that can be used by name."""

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib.metadata import entry_points
from typing import TypeVar

from scommer.errors import RunWarning, UsageError

T = TypeVar("T")


class Registry(MutableMapping[str, T]):
    """Entries by name, in the order in which they were added; `registry[name] = entry` adds one.

    It also holds the entries of installed packages, which declare them as entry points of `group`. These are loaded
    once: when a name is missing, or before the names are listed. `accepts` checks an entry, `expected` describes one.
    """

    def __init__(self, group: str, expected: str, accepts: Callable[[object], bool], entries: Mapping[str, T]) -> None:
        self._group, self._expected, self._accepts = group, expected, accepts
        self._entries, self._loaded = dict(entries), False

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            self._load_entry_points()
        return self._entries[name]

    def __setitem__(self, name: str, entry: T) -> None:
        if not self._accepts(entry):
            raise UsageError(f"{entry!r} cannot be '{name}' in {self._group}: expected {self._expected}")
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load_entry_points()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self._group!r}, {self._entries})"

    def _load_entry_points(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # first, because a package that is being loaded may look something up
        for point in entry_points(group=self._group):
            try:
                entry = point.load()
                if self._entries.get(point.name, entry) is not entry:
                    raise UsageError("the name is taken")
                self[point.name] = entry
            except Exception as e:  # whatever a package does wrong, the others still work
                package = f" of {point.dist.name}" if point.dist else ""
                warnings.warn(
                    f"skipped the entry point {point.name} = {point.value}{package} in {self._group} "
                    f"({type(e).__name__}: {e})",
                    RunWarning,
                    stacklevel=3,
                )
