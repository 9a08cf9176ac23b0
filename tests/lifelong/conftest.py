"""A stream of digits, two classes per task."""

import pytest

from scommer import Stream, class_il
from scommer.data import load


@pytest.fixture(scope="module")
def stream() -> Stream:
    return class_il(load("digits"), tasks=5, name="my-digits")
