"""The options of a run: checked in one place, given as one object or as keywords."""

from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from scommer import Experiment, run
from scommer.errors import UsageError
from scommer.runs.options import RunOptions
from scommer.runs.runner import run_together

SGD = Experiment("s-digits", "sgd", settings={"epochs": 1, "width": 4})
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"minutes": 0.0}, "minutes = 0 is invalid: expected more than 0"),
    ({"minutes": float("nan")}, "minutes = nan is invalid"),
    ({"checkpoint_seconds": -1.0}, "checkpoint_seconds = -1 is invalid: expected 0 or more"),
    ({"weights": True}, "weights are kept in the run's folder: give one with out"),
    ({"log": "tensorbord"}, "unknown log 'tensorbord': did you mean 'tensorboard'"),
    ({"device": "toaster"}, "device 'toaster' cannot be used here"),
    ({"device": "cpu", "precision": "bf16"}, "bf16 is for GPUs"),
    ({"precision": "fp8"}, "unknown precision 'fp8'"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_invalid_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    for refusing in (
        lambda: RunOptions(**wrong),
        lambda: replace(RunOptions(), **wrong),
        lambda: run(SGD, **wrong),
        lambda: run_together([SGD], **wrong),
    ):
        with pytest.raises(UsageError, match=message):
            refusing()


def test_options_cannot_be_changed_later() -> None:
    with pytest.raises(FrozenInstanceError):
        RunOptions().minutes = -1  # type: ignore[misc]


def test_a_run_takes_options_as_an_object_as_keywords_or_both(tmp_path: Path) -> None:
    options = RunOptions(out=tmp_path / "a", device="cpu", weights=True)
    names = [
        run(SGD, options).name,
        run(SGD, out=str(tmp_path / "b"), device="cpu", weights=True).name,
        run_together([SGD], options, out=tmp_path / "c", weights=False)[0].name,  # keywords win
    ]
    kept = [
        (tmp_path / place / name / "weights.safetensors").exists() for place, name in zip("abc", names, strict=True)
    ]
    assert kept == [True, True, False]
    assert options.out == tmp_path / "a"


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="checkpoint_second"):
        run(SGD, checkpoint_second=3)


def test_the_help_of_run_names_every_option() -> None:
    assert run.__doc__
    assert [f.name for f in fields(RunOptions) if f"`{f.name}`" not in run.__doc__] == []
