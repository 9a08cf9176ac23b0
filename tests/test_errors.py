"""Names that are not known, and numbers out of range, are refused with a hint."""

from math import inf
from types import SimpleNamespace

import pytest

from scommer.errors import UsageError, check_name, lookup, within


def test_an_entry_is_found_by_its_name() -> None:
    assert lookup("tree", "oak", {"oak": 1, "elm": 0}) == 1


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("aok", ["oak", "elm"], "unknown tree 'aok': did you mean 'oak'?"),
        ("x", ["oak", "elm"], "unknown tree 'x': known: elm, oak"),
        ("20", ["200", "500"], "unknown tree '20': known: 200, 500"),  # shared digits mean nothing
        ("oak", [], "unknown tree 'oak': known: "),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_or_with_all(name: str, known: list[str], message: str) -> None:
    for check in (lambda: check_name("tree", name, known), lambda: lookup("tree", name, dict.fromkeys(known, 1))):
        with pytest.raises(UsageError) as refused:
            check()
        assert str(refused.value) == message


def test_numbers_and_lists_of_numbers_are_checked_against_a_range() -> None:
    settings = SimpleNamespace(one=0.5, many=(0.1, 1.0, 1.2), low=-1)
    within(settings, 0, 1.2, "one", "many")
    with pytest.raises(UsageError, match=r"many = 1.2 .* from 0 to 1$"):
        within(settings, 0, 1, "one", "many")
    with pytest.raises(UsageError, match=r"low = -1 .* at least 0$"):
        within(settings, 0, inf, "low")
