"""Registries: a dict that also finds what installed packages offer."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scommer.errors import RunWarning, UsageError
from scommer.methods import METHODS
from scommer.nn.networks import NETWORKS
from scommer.registry import Registry
from scommer.streams import STREAMS


def numbers(**entries: int) -> "Registry[int]":
    return Registry("some.group", "a number", lambda entry: isinstance(entry, int), entries)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in a folder of installed packages, with entry points in two groups."""
    (tmp_path / "offers.py").write_text("two, three, word = 2, 3, 'four'\nloaded = []\n")
    (tmp_path / "counts.py").write_text("import offers\noffers.loaded.append(1)\nfive = 5\n")
    info = tmp_path / "offers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[some.group]\ntwo = offers:two\nfive = counts:five\n\n[other.group]\nthree = offers:three\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield info / "entry_points.txt"
    for name in ("offers", "counts"):
        sys.modules.pop(name, None)


def test_a_registry_behaves_like_a_dict() -> None:
    registry, like = numbers(b=1, a=2), {"b": 1, "a": 2}
    for each in (registry, like):
        each["c"] = 3
        each["b"] = 4
        del each["a"]
    assert dict(registry) == like
    assert list(registry.items()) == list(like.items())
    assert (len(registry), "c" in registry, "a" in registry, registry.get("a")) == (2, True, False, None)
    with pytest.raises(KeyError):
        registry["a"]


def test_an_invalid_entry_is_refused() -> None:
    registry = numbers()
    with pytest.raises(UsageError, match=r"'one' cannot be 'a' in some\.group: expected a number"):
        registry["a"] = "one"  # type: ignore[assignment]
    assert not registry


@pytest.mark.parametrize(
    ("registry", "wrong"),
    [
        (METHODS, (METHODS["er"](), "er", int)),
        (NETWORKS, (NETWORKS["mlp"].make, "mlp")),
        (STREAMS, ("digits", ("digits",), ("digits", "s-digits"), (1, print))),
    ],
    ids=["methods", "networks", "streams"],
)
def test_each_registry_accepts_only_its_kind_of_entry(registry: "Registry[object]", wrong: tuple[object, ...]) -> None:
    for entry in wrong:
        with pytest.raises(UsageError, match="expected a"):
            registry["x"] = entry
    for entry in [*registry.values()]:
        registry["x"] = entry
    del registry["x"]


def test_a_missing_name_is_looked_for_in_installed_packages(installed: Path) -> None:
    registry = numbers(one=1)
    assert registry["two"] == 2
    assert list(registry) == ["one", "two", "five"]
    assert "three" not in registry  # of another group


@pytest.mark.parametrize("look", [list, len, dict, lambda r: [*r.items()], lambda r: "x" in r, lambda r: r.get("x")])
def test_packages_are_loaded_once_when_names_are_listed_or_missing(
    installed: Path, look: Callable[["Registry[int]"], Any]
) -> None:
    import offers  # type: ignore[import-not-found]

    registry = numbers(one=1)
    assert registry["one"] == registry.get("one") == 1
    assert offers.loaded == []  # a known name loads nothing
    look(registry)
    assert offers.loaded == [1]
    del sys.modules["counts"]  # would be loaded once more
    look(registry)
    assert offers.loaded == [1]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ("bad = nowhere:two", "ModuleNotFoundError"),
        ("bad = offers:missing", "AttributeError"),
        ("bad = offers:word", "expected a number"),
        ("one = offers:three", "the name is taken"),
    ],
)
def test_a_broken_entry_point_is_skipped_with_a_warning(installed: Path, point: str, reason: str) -> None:
    installed.write_text(f"[some.group]\n{point}\ntwo = offers:two\n")
    registry = numbers(one=1)
    with pytest.warns(RunWarning, match=f"entry point {point} of offers in some.group .*{reason}"):
        assert registry["two"] == 2
    assert dict(registry) == {"one": 1, "two": 2}
