"""Labels as people give them: the classes that may come, and the place of each label among them."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from scommer.data.dataset import Array
from scommer.errors import UsageError

Label = int | str
Labels = Array | Sequence[Label]


def classes_of(given: object) -> list[Label]:
    """The labels that may come, as plain values."""
    if isinstance(given, Integral):
        given = range(int(given))
    listed = given.tolist() if isinstance(given, np.ndarray) else given
    plain = [_plain(c) for c in listed] if _is_list(listed) else []
    if {type(c) for c in plain} not in ({int}, {str}):
        raise UsageError("classes are not understood: give how many, or a list of whole numbers, or one of words")
    if len(plain) < 2 or len(set(plain)) != len(plain):
        raise UsageError(f"of {len(plain)} classes {len(set(plain))} differ: give at least 2, each once")
    if np.array(plain).tolist() != plain:
        raise UsageError("classes are not understood: give smaller numbers, or words without a zero byte")
    return plain


def extended(classes: object, more: object) -> int | list[Label]:
    """The labels that may come, and more after them: their number, where only that is given, or all of them."""
    before = classes_of(classes)
    if isinstance(more, Integral):
        if not isinstance(classes, Integral):
            raise UsageError(f"the classes have labels, such as {before[0]!r}: give those of the new ones in a list")
        if more < 1:
            raise UsageError(f"{more} more classes are none: give 1 or more")
        return len(before) + int(more)
    listed = more.tolist() if isinstance(more, np.ndarray) else more
    if not _is_list(listed) or not listed:
        raise UsageError("more classes are not understood: give a list of their labels")
    known = [label for label in map(_plain, listed) if label in before]
    if known:
        raise UsageError(f"{known[0]!r} is one of the {len(before)} classes already: leave it out")
    return classes_of([*before, *listed])


def numbers(labels: Labels, length: int, classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each label among the classes."""
    listed = labels.tolist() if hasattr(labels, "tolist") else labels
    if not _is_list(listed) or len(listed) != length:
        given = f"{len(listed)} labels" if _is_list(listed) else f"a {type(labels).__name__}"
        raise UsageError(f"for {length} images there are {given}: pass one label per image")
    place = {c: i for i, c in enumerate(classes.tolist())}
    plain = [_plain(label) for label in listed]
    for label in plain:
        if not isinstance(label, int | float | str) or label not in place:
            raise UsageError(
                f"label {label!r} is none of the {len(place)} classes: mend it, or make room by add_classes"
            )
    return np.array([place[label] for label in plain], np.int64)


def _plain(label: object) -> Any:
    """Of NumPy's numbers and words, Python's own."""
    return int(label) if isinstance(label, Integral) else str(label) if isinstance(label, str) else label


def _is_list(given: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(given, Sequence) and not isinstance(given, str)
