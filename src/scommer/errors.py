"""The errors and warnings that users see, and the checks that raise them."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from math import inf
from typing import TypeVar

T = TypeVar("T")


def printable(text: str) -> str:
    """Return text that is safe to print in a terminal: names in files may contain control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


class ScommerError(Exception):
    """A message for the user: what was given, what was expected, what to do next."""

    exit_code = 1


class UsageError(ScommerError, ValueError):
    """Invalid input (exit code 2)."""

    exit_code = 2


class UnreadableImage(UsageError):
    """Image files that cannot be read."""


class DataNotFound(UsageError):
    """The files of a data set are not on this machine."""


class RunError(ScommerError):
    """A run that cannot continue (exit code 1)."""


class RunWarning(UserWarning):
    """Something the user should know that does not stop a run."""


def check_name(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not known, and suggest the nearest one that is."""
    if name in known:
        return
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1)
    alike = near and not near[0].isdigit()  # numbers that share digits are not alike
    hint = f"did you mean '{near[0]}'?" if alike else f"known: {', '.join(names)}"
    raise UsageError(f"unknown {kind} '{name}': {hint}")


def lookup(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """Return the entry called `name`, or refuse the name as `check_name` does."""
    check_name(kind, name, registry)
    return registry[name]


def within(settings: object, low: float, high: float, *names: str) -> None:
    """Check that these settings, each a number or a list of numbers, are between low and high."""
    for name in names:
        value = getattr(settings, name)
        for number in value if isinstance(value, Sequence) else (value,):
            if not low <= number <= high:
                expected = f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"
                raise UsageError(f"{name} = {number:g} is invalid: expected a number {expected}")
