"""Every setting has a sentence and, where the paper has one, its symbol."""

from dataclasses import dataclass, fields, make_dataclass
from typing import Literal

import pytest
from calling import call

from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.runs.meanings import Meaning, meanings

KINDS = [Training, *METHODS.values()]


@dataclass(frozen=True)
class Base:
    kept: float = 1.0  # κ, a value that is kept
    changed: float = 1.0  # α, the old meaning
    listed: tuple[float, ...] = (
        1.0,
        2.0,
    )  # ends in a full stop.


@dataclass(frozen=True)
class Derived(Base):
    changed: float = 2.0  # β, the new meaning; (a, b) too
    word: str = "a"  # one word, then more
    silent: int = 0
    choice: Literal["one", "two", "three"] = "one"  # a word to choose
    only: Literal["this"] = "this"  # a word that is given


def test_the_comment_after_a_field_is_its_meaning() -> None:
    assert meanings(Derived) == {
        "kept": Meaning("κ", "A value that is kept."),
        "changed": Meaning("β", "The new meaning; (a, b) too."),
        "listed": Meaning("", "Ends in a full stop."),
        "word": Meaning("", "One word, then more."),
        "silent": Meaning(),
        "choice": Meaning("", "A word to choose: one, two or three."),
        "only": Meaning("", "A word that is given: this."),
    }


def test_a_class_without_source_has_no_meanings() -> None:
    assert meanings(make_dataclass("Typed", [("x", int, 1)])) == {"x": Meaning()}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_setting_lacks_a_sentence(kind: type) -> None:
    found = meanings(kind)
    assert list(found) == [f.name for f in fields(kind)]
    for name, (_, sentence) in found.items():
        assert len(sentence.split()) > 1, name
        assert sentence[0] == sentence[0].upper(), name
        assert sentence.endswith("."), name


def test_symbols_are_those_of_the_papers() -> None:
    found = meanings(METHODS["scommer"], Training)
    of_paper = {"gamma": "γ", "r": "r", "alpha": "α", "active": "%k", "pi_h": "π_h", "pi_s": "π_s", "warmup": "E_h"}
    added = {"lr": "η", "horizon": "h", "recent": "f", "balance": "τ", "teach": "λ", "turned": "ρ"}
    assert {name: m.symbol for name, m in found.items() if m.symbol} == of_paper | added
    assert [m.symbol for m in meanings(METHODS["der++"]).values()] == ["α", "β"]


@pytest.mark.parametrize("name", METHODS)
def test_list_shows_what_every_setting_means(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(call(capsys, "list", "s-cifar10", "-m", name)[1].split())
    for setting, (symbol, sentence) in meanings(Training, METHODS[name]).items():
        assert f" {setting} " in out
        assert symbol in out
        assert all(word in out for word in sentence.split()), setting


def test_list_shows_shared_settings_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "list", "s-cifar10")[1].splitlines()
    assert len([line for line in out if line.startswith("momentum ")]) == 1  # the same for all
    assert len([line for line in out if line.startswith("lr ")]) == len(METHODS)
