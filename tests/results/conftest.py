"""The words that are held against records, on one line each."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def words(path: str) -> str:
    return " ".join((ROOT / path).read_text().split())


@pytest.fixture
def reading() -> str:
    return words("results/README.md")


@pytest.fixture
def front() -> str:
    return words("README.md")


@pytest.fixture
def captions() -> str:
    return words("docs/figures.md")
