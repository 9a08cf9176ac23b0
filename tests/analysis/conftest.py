"""Made-up records, and commands in this process."""

from collections.abc import Callable

import pytest
from calling import exit_code
from example_records import made_record

from scommer.runs.record import Record

MakeRecord = Callable[..., Record]


@pytest.fixture(scope="session")
def make() -> MakeRecord:
    return made_record


@pytest.fixture
def call() -> Callable[..., int]:
    """A function that runs a command in this process and returns its exit code."""
    return exit_code
