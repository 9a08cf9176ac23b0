"""Run commands in this process."""

import sys

import pytest

from scommer.cli import main

QUICK = ["--epochs", "1", "--set", "width=4", "--device", "cpu"]


def exit_code(*arguments: object) -> int:
    """Run a command and return its exit code."""
    before, sys.argv = sys.argv, ["scommer", *map(str, arguments)]
    try:
        main()
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0
    finally:
        sys.argv = before
    return 0


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command and return its exit code, stdout and stderr."""
    code = exit_code(*arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err
