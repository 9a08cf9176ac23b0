"""Lists of numbers on the command line: spaces, commas, ranges and repeated options."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from calling import call
from typer.testing import CliRunner

from scommer.cli.common import Command, numbers_option
from scommer.errors import UsageError


def parsed(*words: str) -> dict[str, Any]:
    """Return the values that a command with two lists, a flag, an option and arguments receives."""
    found: dict[str, Any] = {}
    app = typer.Typer()

    @app.command(cls=Command)
    def command(
        places: list[str],
        seeds: Annotated[list[int] | None, numbers_option("--seeds", "Seeds.")] = None,
        cohorts: Annotated[list[int] | None, numbers_option("--cohorts", "Cohorts.")] = None,
        buffer: Annotated[int, typer.Option("--buffer", "-b")] = 200,
        dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    ) -> None:
        found.update(places=places, seeds=seeds, cohorts=cohorts, buffer=buffer, dry_run=dry_run)

    result = CliRunner().invoke(app, words)
    if isinstance(result.exception, UsageError):
        raise result.exception
    return found if result.exit_code == 0 else {"exit code": result.exit_code}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("x --seeds 0 1 2", [0, 1, 2]),
        ("x --seeds 0,1,2", [0, 1, 2]),
        ("x --seeds 0-2", [0, 1, 2]),
        ("x --seeds=0-2", [0, 1, 2]),
        ("x --seeds=0 1 2", [0, 1, 2]),
        ("x --seeds 0 --seeds 1 --seeds 2", [0, 1, 2]),
        ("x --seeds 0 1 --seeds 2", [0, 1, 2]),
        ("--seeds 0 1 2 x", [0, 1, 2]),
        ("x --seeds 0-2 5,7-8", [0, 1, 2, 5, 7, 8]),
        ("x --seeds 3", [3]),
        ("x --seeds 2, 1", [2, 1]),
        ("x --seeds 4-4", [4]),
        ("x", None),
    ],
)
def test_all_ways_to_write_a_list(words: str, expected: list[int] | None) -> None:
    found = parsed(*words.split())
    assert (found["seeds"], found["places"]) == (expected, ["x"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--seeds 0 1 -b 5 x", {"seeds": [0, 1], "buffer": 5, "places": ["x"]}),
        ("--seeds 0 1 --dry-run 7", {"seeds": [0, 1], "dry_run": True, "places": ["7"]}),
        ("--seeds 0 1 --cohorts 2 4 x", {"seeds": [0, 1], "cohorts": [2, 4], "places": ["x"]}),
        ("x --buffer 5 7 --seeds 1", {"buffer": 5, "places": ["x", "7"], "seeds": [1]}),  # of an option without a list
        ("--seeds 0 1 x 2", {"seeds": [0, 1], "places": ["x", "2"]}),
        ("--seeds 0 -- 1 2", {"seeds": [0], "places": ["1", "2"]}),
        ("--seeds 0 -- --seeds 2", {"seeds": [0], "places": ["--seeds", "2"]}),
    ],
)
def test_nothing_else_is_swallowed(words: str, expected: dict[str, Any]) -> None:
    found = parsed(*words.split())
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("x --seeds 2-0", "'2-0' ends before it begins: write 0-2"),
        ("x --seeds one", "'one' is not a list of whole numbers: write 0 1 2, 0,1,2 or 0-2"),
        ("x --seeds 0,one", "'one' is not"),
        ("x --seeds -1", "'-1' is not"),
        ("x --seeds 1.5", "'1.5' is not"),
        ("x --seeds ,", "',' has no numbers"),
    ],
)
def test_an_invalid_list_is_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        parsed(*words.split())
    assert "Value error" not in str(refused.value)


def test_a_list_without_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'--seeds' requires an argument: see .* --help"):
        parsed("x", "--seeds")


def test_a_cohort_of_0_learners_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(capsys, "bench", "--cohorts", "0", "1", "--device", "cpu")
    assert (code, err.count("\n"), "--cohorts 0" in err) == (2, 1, True)
