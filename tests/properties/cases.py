"""What the properties share: numbers of cases, damage to bytes and JSON, and commands whose output is checked."""

import json
import sys
import unicodedata
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from io import BytesIO, TextIOWrapper
from typing import Any, TypeVar

from calling import exit_code
from hypothesis import settings, strategies as st

from scommer.errors import ScommerError

# --- how many


def cases(share: float = 1.0) -> settings:
    """Return the settings of a property: a share of the profile's cases, smaller where a case takes longer."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))  # type: ignore[union-attr]


# --- damage

Damage = Callable[[bytes], bytes]


def _flip(places: list[tuple[float, int]]) -> Damage:
    def flipped(content: bytes) -> bytes:
        changed = bytearray(content)
        for place, bits in places:
            if changed:
                changed[int(place * len(changed))] ^= bits
        return bytes(changed)

    return flipped


def _cut(place: float) -> Damage:
    return lambda content: content[: int(place * len(content))]


def _insert(place: float, more: bytes) -> Damage:
    return lambda content: content[: int(place * len(content))] + more + content[int(place * len(content)) :]


def _replace(content: bytes) -> Damage:
    return lambda _: content


_place = st.floats(0, 1, exclude_max=True)
damages: st.SearchStrategy[Damage] = st.one_of(
    st.builds(_flip, st.lists(st.tuples(_place, st.integers(1, 255)), min_size=1, max_size=8)),
    st.builds(_cut, _place),
    st.builds(_insert, _place, st.binary(min_size=1, max_size=40)),
    st.builds(_replace, st.binary(max_size=200)),
)

# --- JSON with other values

ODD = "\x1b\x07\r\n\t\x7f\x9b\u202e [({<&%$\\_^~'\""
odd_text = st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8")), max_size=20)
odd_numbers = st.one_of(
    st.sampled_from([0, 1, -1, 0.5, 100, 100.5, 1e308, -1e308, 5e-324, 2**31, 2**63, 2**64, 10**400, -(10**400)]),
    st.sampled_from([float("nan"), float("inf"), -float("inf")]),
    st.integers(-10, 10),
    st.floats(),
)
_leaves = st.one_of(st.none(), st.booleans(), odd_numbers, odd_text)
odd_values: st.SearchStrategy[Any] = st.one_of(
    _leaves,
    st.recursive(_leaves, lambda v: st.lists(v, max_size=4) | st.dictionaries(odd_text, v, max_size=4), max_leaves=8),
    st.sampled_from([[[]], [[[]]], {"class_il": [[1.0]]}, {"": {}}]).map(deepcopy),
)


@st.composite
def changed_json(draw: st.DrawFn, text: str, most: int = 3) -> Any:
    """Return the values of a JSON text with some of them removed, replaced, added to, or renamed everywhere."""
    root: Any = {"": json.loads(text)}  # held, so that the whole can be replaced like a part
    for _ in range(draw(st.integers(1, most))):
        parent, key = _draw_place(draw, root)
        value = parent[key]
        change = draw(st.sampled_from(["replace", "remove", "alike", "alike", "add", "rename"]))
        if change == "remove":
            del parent[key]
            root.setdefault("", None)
        elif change == "alike" and isinstance(value, int | float) and not isinstance(value, bool):
            parent[key] = draw(odd_numbers)
        elif change == "alike" and isinstance(value, str):
            parent[key] = draw(odd_text)
        elif change == "add" and isinstance(value, list):
            value.append(deepcopy(draw(st.sampled_from(value))) if value else draw(odd_values))
        elif change == "add" and isinstance(value, dict):
            value[draw(odd_text)] = deepcopy(draw(st.sampled_from(list(value.values())))) if value else draw(odd_values)
        elif change == "rename" and isinstance(word := key if isinstance(key, str) and key else value, str):
            root[""] = _renamed(root[""], word, draw(odd_text))
        else:
            parent[key] = draw(odd_values)
    return root[""]


def _draw_place(draw: st.DrawFn, root: Any) -> tuple[Any, Any]:
    """Return a part of a JSON value: what holds it, and under which key. Small parts are as likely as large ones."""
    parent, key = root, ""
    while (held := parent[key]) and isinstance(held, dict | list) and draw(st.integers(0, 9)):
        parent, key = held, draw(st.sampled_from(list(held) if isinstance(held, dict) else range(len(held))))
    return parent, key


def _renamed(value: Any, word: str, by: str) -> Any:
    """Return a JSON value with another word everywhere, as a key and as a value."""
    if isinstance(value, dict):
        return {by if key == word else key: _renamed(v, word, by) for key, v in value.items()}
    if isinstance(value, list):
        return [_renamed(v, word, by) for v in value]
    return by if value == word else value


# --- what may come of it

T = TypeVar("T")


def result_or_refusal(load: Callable[[], T], named: object) -> T | None:
    """Return what a call returns; None if it raises the package's error, which must name a file. Others get through."""
    try:
        return load()
    except ScommerError as e:
        said = str(e)
    assert str(named) in said
    return None


def checked_call(*arguments: object, codes: tuple[int, ...] = (0, 1, 2)) -> tuple[int, str]:
    """Run a command and return its exit code and output. Fails on a traceback, another code, or control characters."""
    out = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(out):
        code = exit_code(*arguments)
        sys.stdout.flush()
    printed = out.buffer.getvalue().decode()
    assert code in codes, (arguments, code, printed)
    assert "Traceback" not in printed, (arguments, printed)
    controls = {c for c in printed if unicodedata.category(c) == "Cc"} - set("\n\t")
    assert not controls, (arguments, controls, printed)
    return code, printed
