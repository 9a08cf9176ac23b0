"""The two ways a command fails: the user can mend the input, or the run itself broke."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from math import inf


class ScommerError(Exception):
    """A message for the user: what was given, what was expected, what to do next."""

    exit_code = 1


class UsageError(ScommerError):
    """Input that cannot be used as given (exit code 2)."""

    exit_code = 2


class DataNotFound(UsageError):
    """The files of a data set are not on this machine."""


class RunError(ScommerError):
    """A run that could not go on (exit code 1)."""


class RunWarning(UserWarning):
    """Something that a run goes on without, and its user should know."""


def unknown(kind: str, given: object, known: Iterable[str]) -> UsageError:
    """An error for a name that is not known, with the nearest one that is."""
    names = sorted(known)
    near = get_close_matches(str(given), names, n=1)
    alike = near and not near[0].isdigit()  # digits that numbers share mean nothing
    hint = f"did you mean '{near[0]}'?" if alike else f"known: {', '.join(names)}"
    return UsageError(f"unknown {kind} '{given}': {hint}")


def within(settings: object, low: float, high: float, *names: str) -> None:
    """Checks that these settings, numbers or lists of them, lie from low to high."""
    for name in names:
        value = getattr(settings, name)
        for number in value if isinstance(value, Sequence) else (value,):
            if not low <= number <= high:
                expected = f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"
                raise UsageError(f"{name} = {number:g} is impossible: give a number {expected}")
