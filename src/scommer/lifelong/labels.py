"""Class labels as users give them, and their encoding as indices."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from scommer.data.dataset import Array
from scommer.errors import UsageError

Label = int | str | bool
Labels = Array | Sequence[Label]


def parse_classes(given: object, fewest: int = 2) -> list[Label]:
    """Return the class labels as plain values: those listed, or 0, 1, 2, … for a number of classes."""
    if isinstance(given, Integral):
        given = range(int(given))
    listed = _to_list(given)
    plain = [_plain(c) for c in listed] if _is_list(listed) else []
    if {type(c) for c in plain} not in ({int}, {str}, {bool}):
        raise UsageError("invalid classes: give their number, a list of integers or a list of strings")
    distinct = len(set(plain))
    if len(plain) < fewest or distinct != len(plain):
        raise UsageError(
            f"{len(plain)} classes were given, {distinct} of them distinct: give at least {fewest}, each once"
        )
    array = np.array(plain)
    if array.dtype.kind not in "ibU" or array.tolist() != plain:
        raise UsageError("NumPy cannot hold these classes: give smaller integers, or strings without a final zero byte")
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


def with_new_labels(known: Sequence[Label], labels: Sequence[Label]) -> list[Label]:
    """Return the known classes and, after them, those that are new, sorted."""
    unknown = sorted(set(labels) - set(known), key=lambda label: (str(type(label)), label))
    if kinds := {type(label) for label in (*known, *unknown)} - {type((*known, *unknown)[0])}:
        raise UsageError(
            f"labels are {type((*known, *unknown)[0]).__name__} and {kinds.pop().__name__}: give labels of one type"
        )
    return parse_classes([*known, *unknown], fewest=1)


def plain_labels(labels: Any, length: int) -> list[Label]:
    """Return labels as plain values, one per input."""
    if labels is None:
        raise UsageError("learning requires y to be passed, but the target y is None: give a label for each input")
    if hasattr(labels, "detach"):
        labels = labels.detach().tolist()  # also of a dtype that NumPy lacks
    if isinstance(labels, str | float | Integral):
        raise UsageError(f"expected {length} labels, one per input; got a value of type {type(labels).__name__}")
    listed = isinstance(labels, list | tuple)
    array = column_or_1d(np.array(labels, dtype=object) if listed and _mixed(labels) else np.asarray(labels), warn=True)
    if len(array) != length:
        raise UsageError(f"expected {length} labels, one per input; got {len(array)}")
    plain = [_plain(label) for label in array.tolist()]
    for label in plain:
        if isinstance(label, float) and not np.isfinite(label):
            raise UsageError(f"label {label} is not a class (NaN or infinity): correct it")
    if any(isinstance(label, float) for label in plain):
        check_classification_targets(np.asarray(plain, float))  # numbers such as 0.5 are not classes
        plain = [int(label) for label in plain]
    for label in plain:
        if not isinstance(label, int | str | bool):
            raise UsageError(f"label {label!r} is not a class: give integers or strings")
    return plain


def encode_labels(labels: Sequence[Label], classes: Sequence[Label]) -> NDArray[np.int64]:
    """Return the index of each label in `classes`."""
    index = {(type(c), c): i for i, c in enumerate(classes)}
    for label in labels:
        if (type(label), label) not in index:
            raise UsageError(
                f"label {label!r} is not one of the {len(index)} classes: correct it, or call add_classes first"
            )
    return np.array([index[type(label), label] for label in labels], np.int64)


def _mixed(labels: Any) -> bool:
    return len({type(label) for label in labels}) > 1  # NumPy would turn all of them into strings


def _to_list(given: Any) -> object:
    return given.tolist() if hasattr(given, "tolist") else given


def _plain(label: object) -> Any:
    """Turn NumPy's integers and strings into Python's. True is not the class 1."""
    if isinstance(label, bool | np.bool_):
        return bool(label)
    return int(label) if isinstance(label, Integral) else str(label) if isinstance(label, str) else label


def _is_list(given: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(given, Sequence) and not isinstance(given, str)
