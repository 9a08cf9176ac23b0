"""Any setting and any list of numbers: read as written, or refused with the package's error."""

from typing import Any

import pytest
from cases import cases, odd_numbers, odd_text, result_or_refusal
from hypothesis import example, given, strategies as st

from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.nn.networks import NETWORKS
from scommer.runs.presets import DEFAULT, resolve
from scommer.runs.settings import as_dict, coerce, parse, setting_types, written
from scommer.streams import STREAMS
from scommer.sweeps.ranges import MOST, numbers

ALL = {name: hint for kind in (Training, *METHODS.values()) for name, hint in setting_types(kind).items()}

# --- name=value


@cases()
@given(st.one_of(odd_text, odd_numbers.map(str), odd_text.map(lambda text: f"lr={text}")))
@example("lr=" + "9" * 5000)
@example("lr=" + "[" * 5000)
@example("lr=1\nepochs=2")
@example("network=.5x")
def test_any_assignment(text: str) -> None:
    found = result_or_refusal(lambda: parse(text), "is not a setting")
    name, sign, value = text.partition("=")
    assert (found is not None) == bool(sign and name.strip())
    if found is not None:
        assert found[0] == name.strip()
        if isinstance(found[1], str) and "\\" not in value:
            assert found[1].strip() in value  # a word stays as it is, or loses its quotes


plain = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4),
    st.sampled_from(sorted({*METHODS, *NETWORKS, *STREAMS})),
)


@cases()
@given(plain)
def test_a_value_is_read_as_it_is_written(value: Any) -> None:
    name, found = parse(f" lr = {written(value)}")
    assert name == "lr"
    assert found == value
    assert type(found) is type(value)


@cases()
@given(
    st.sampled_from(sorted(METHODS)),
    st.dictionaries(st.sampled_from(sorted(ALL)), odd_numbers | st.just([]), max_size=3),
)
def test_any_values_of_settings(method: str, given: dict[str, Any]) -> None:
    """Whatever is accepted is used, and can be given again."""
    resolved = result_or_refusal(lambda: resolve(DEFAULT, method, 50, overrides=given), "")
    if resolved is not None:
        found = as_dict(*resolved)
        assert all(found[name] == value for name, value in given.items())
        again = {name: coerce(name, parse(f"x={written(value)}")[1], ALL[name]) for name, value in found.items()}
        assert as_dict(*resolve(DEFAULT, method, 50, overrides=again)) == found


# --- lists of numbers

ranges = st.tuples(st.integers(0, 10**6), st.integers(0, 40)).map(lambda r: (r[0], r[0] + r[1]))


@cases()
@given(st.lists(ranges, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_lists_are_read_as_written(parts: list[tuple[int, int]], random: Any) -> None:
    def text(first: int, last: int) -> str:
        return str(first) if first == last and random.random() < 0.5 else f"{first}-{last}"

    expected = [n for first, last in parts for n in range(first, last + 1)]
    assert numbers(",".join(text(*part) for part in parts)) == expected


@cases()
@given(st.text("0123456789-, ٣²", max_size=12) | odd_text | st.integers(0, 10**30).map(lambda n: f"0-{n}"))
@example("9" * 5000)
def test_any_list(text: str) -> None:
    found = result_or_refusal(lambda: numbers(text), "")
    if found is not None:
        assert 0 < len(found) <= MOST * (1 + text.count(","))
        assert all(type(n) is int and n >= 0 for n in found)


@pytest.mark.parametrize("text", ["", ",", "1-", "-1", "2-1", "1.5", "a", "1 2"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(UsageError):
        numbers(text)
