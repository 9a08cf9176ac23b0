"""Class labels as users give them, and their encoding as indices."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from scommer.data.dataset import Array
from scommer.errors import UsageError

Label = int | str
Labels = Array | Sequence[Label]


def parse_classes(given: object) -> list[Label]:
    """Return the class labels as plain values: those listed, or 0, 1, 2, … for a number of classes."""
    if isinstance(given, Integral):
        given = range(int(given))
    listed = _to_list(given)
    plain = [_plain(c) for c in listed] if _is_list(listed) else []
    if {type(c) for c in plain} not in ({int}, {str}):
        raise UsageError("invalid classes: give their number, a list of integers or a list of strings")
    distinct = len(set(plain))
    if len(plain) < 2 or distinct != len(plain):
        raise UsageError(f"{len(plain)} classes were given, {distinct} of them distinct: give at least 2, each once")
    if np.array(plain).tolist() != plain:
        raise UsageError("NumPy cannot hold these classes: give smaller integers, or strings that end in no zero byte")
    return plain


def extend_classes(classes: object, new: object) -> int | list[Label]:
    """Return `classes` with `new` ones after them, as a number where both are numbers, else as a list."""
    before = parse_classes(classes)
    if isinstance(new, Integral):
        if not isinstance(classes, Integral):
            raise UsageError(f"the classes have labels ({before[0]!r}, …): give the labels of the new ones in a list")
        if new < 1:
            raise UsageError(f"cannot add {new} classes: give 1 or more")
        return len(before) + int(new)
    listed = _to_list(new)
    if not _is_list(listed) or not listed:
        raise UsageError("invalid classes to add: give a list of their labels")
    for label in map(_plain, listed):
        if label in before:
            raise UsageError(f"{label!r} is already one of the {len(before)} classes: leave it out")
    return parse_classes([*before, *listed])


def encode_labels(labels: Labels, length: int, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of each label in `classes`."""
    listed = _to_list(labels)
    if not _is_list(listed) or len(listed) != length:
        given = len(listed) if _is_list(listed) else f"a value of type {type(labels).__name__}"
        raise UsageError(f"expected {length} labels, one per image; got {given}")
    index = {c: i for i, c in enumerate(classes.tolist())}
    plain = [_plain(label) for label in listed]
    for label in plain:
        if isinstance(label, bool) or not isinstance(label, int | float | str) or label not in index:
            raise UsageError(
                f"label {label!r} is not one of the {len(index)} classes: correct it, or call add_classes first"
            )
    return np.array([index[label] for label in plain], np.int64)


def _to_list(given: Any) -> object:
    return given.tolist() if hasattr(given, "tolist") else given


def _plain(label: object) -> Any:
    """Turn NumPy's integers and strings into Python's. True is not the class 1."""
    if isinstance(label, bool | np.bool_):
        return bool(label)
    return int(label) if isinstance(label, Integral) else str(label) if isinstance(label, str) else label


def _is_list(given: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(given, Sequence) and not isinstance(given, str)
