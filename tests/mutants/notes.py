"""A plugin of pytest: writes the names of failing tests to $MUTANT_NOTES, and leaves out those in $MUTANT_LEFT_OUT."""

import os
from pathlib import Path
from typing import Any

import pytest

NOTES = Path(os.environ["MUTANT_NOTES"])
LEFT_OUT = set(Path(os.environ["MUTANT_LEFT_OUT"]).read_text().splitlines())


def _name(nodeid: str) -> str:
    return nodeid.encode("unicode_escape").decode()  # on one line


def _note(nodeid: str) -> None:
    with NOTES.open("a") as f:
        f.write(f"{_name(nodeid)}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _note(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _note(report.nodeid)


def pytest_ignore_collect(collection_path: Path, config: Any) -> bool | None:
    """Leave out a file that cannot be imported."""
    inside = collection_path.is_relative_to(config.rootpath)
    return True if inside and str(collection_path.relative_to(config.rootpath)) in LEFT_OUT else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _name(item.nodeid) in LEFT_OUT]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
