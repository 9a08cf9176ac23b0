"""Which runs are selected by folders, patterns and conditions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from scommer.analysis.selection import changes, load_records, settings_of, unfinished
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.record import Record

Make = Callable[..., Record]


def save(record: Record, folder: Path) -> None:
    folder.mkdir(parents=True)
    record.save(folder)


def test_runs_are_found_in_folders_and_by_patterns_each_once(make: Make, tmp_path: Path) -> None:
    for seed in (0, 1):
        for method in ("er", "scommer"):
            save(make(method, seed), tmp_path / "runs" / f"{method}-seed{seed}")
    assert len(load_records([tmp_path])) == 4
    assert len(load_records([tmp_path, tmp_path / "runs" / "er-seed0"])) == 4
    assert {r.experiment.method for r in load_records([tmp_path / "runs" / "er-*"])} == {"er"}
    (tmp_path / "empty").mkdir()
    for path, why in (
        ("empty", "no record.json in it or below"),
        ("nowhere", "no such folder"),
        ("x-*", "no such folder"),
    ):
        with pytest.raises(UsageError, match=why):
            load_records([tmp_path, tmp_path / path])


def test_settings_that_are_gone_and_did_nothing_are_no_change(make: Make) -> None:
    record = make("scommer", 0)
    record.settings = presets.settings("s-made", "scommer", 30) | {"jitter": 0.0, "cutout": 0}
    assert changes(record) == ""
    assert "jitter" not in settings_of(record)
    record.settings["jitter"] = 0.4
    assert changes(record) == "jitter=0.4"


@pytest.fixture
def varied(make: Make, tmp_path: Path) -> Path:
    """Seeds 0 and 1 of SCoMMER with its preset, dense, and with other ratios; and of ER."""
    changes_of: dict[str, tuple[str, dict[str, Any]]] = {
        "preset": ("scommer", {}),
        "dense": ("scommer", {"sparse": False, "dropout": "none"}),
        "ratios": ("scommer", {"active": [0.9, 0.9, 0.9, 0.7], "gamma": 1.0}),
        "er": ("er", {}),
    }
    for seed in (0, 1):
        for name, (method, change) in changes_of.items():
            record = make(method, seed)
            record.settings = presets.settings("s-made", method, 30, "official", change)
            save(record, tmp_path / f"{name}-{seed}")
    return tmp_path


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("@preset", ["er-0", "er-1", "preset-0", "preset-1"]),
        ("@preset@method=scommer", ["preset-0", "preset-1"]),
        ("@sparse=false", ["dense-0", "dense-1"]),  # ER has no such setting
        ("@dropout=none@seed=1", ["dense-1"]),
        ("/*-1@active=[0.9, 0.9, 0.9, 0.7]", ["ratios-1"]),
        ("@gamma=1", ["ratios-0", "ratios-1"]),
        ("@active=[.9,.9,.9,.7]@seed=0", ["ratios-0"]),  # as for --set
        ("@width=None@method=er", ["er-0", "er-1"]),
        ("@precision=fp32@seed=0@method=er", ["er-0"]),
        ("@sparse=True@buffer=30@seed=0", ["preset-0", "ratios-0"]),
    ],
)
def test_conditions_select_runs(varied: Path, condition: str, names: list[str]) -> None:
    chosen = load_records(f"{varied}{condition}")
    wanted = [Record.load(varied / name) for name in names]
    ours, theirs = ([(r.experiment, r.settings) for r in records] for records in (chosen, wanted))
    assert len(ours) == len(theirs)
    assert all(facts in theirs for facts in ours)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("@gamma=2", "meets @gamma=2: their gamma is 0.15 or 1.0$"),
        ("@spars=false", "did you mean 'sparse'"),
        ("@method=er@r=0.5", "no run in .*@method=er meets @r=0.5: they have no r$"),
        ("@seed", "'@seed' is not a condition: write @name=value, or @preset"),
        ("@", "'@' is not a condition"),
        ("@sparse=0", "their sparse is false or true"),  # a word, not a number
        ("@seed=true", "their seed is 0 or 1"),
        ("@sparse=false@preset", "no run in .*@sparse=false meets @preset: all have changes, .* dropout=none"),
    ],
)
def test_conditions_that_no_run_meets_say_what_there_is(varied: Path, condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_records(f"{varied}{condition}")


def test_a_name_may_look_like_a_number(make: Make, tmp_path: Path) -> None:
    for name in ("2024", "2025"):
        save(make("er", stream=name), tmp_path / name)
    (found,) = load_records(f"{tmp_path}@stream=2024")
    assert found.stream.name == "2024"


def test_without_a_preset_the_given_settings_are_the_changes(make: Make, tmp_path: Path) -> None:
    given_by: dict[str, dict[str, Any]] = {"usual": {}, "slow": {"lr": 0.01}}
    for name, given in given_by.items():
        record = make("er", settings={"mean": [0.3], "network": "small", **given})
        record.experiment = replace(record.experiment, given=given)
        save(record, tmp_path / name)
    (usual,) = load_records(f"{tmp_path}@preset")
    assert (usual.experiment.given, changes(usual)) == ({}, "")
    (slow,) = load_records(f"{tmp_path}@lr=0.01")
    assert changes(slow) == "lr=0.01"


def test_runs_of_an_earlier_preset_have_it_too(make: Make, tmp_path: Path) -> None:
    given: dict[str, dict[str, Any]] = {"today": {}, "earlier": {"warmup": 30}, "changed": {"warmup": 30, "r": 0.3}}
    for name, settings in given.items():
        record = make("scommer", stream="s-cifar10", buffer=200)
        record.settings = presets.settings("s-cifar10", "scommer", 200, overrides=settings)
        save(record, tmp_path / name)
    assert sorted(changes(r) for r in load_records(f"{tmp_path}@preset")) == ["", "warmup=30"]
    (earlier,) = load_records(f"{tmp_path}@preset@warmup=30")
    assert changes(earlier) == "warmup=30"


def test_settings_that_a_record_lacks_count_with_their_default(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make("er", stream="s-digits", buffer=50)
    record.settings = presets.settings("s-digits", "er", 50)
    save(record, tmp_path / "older")

    @dataclass(frozen=True)
    class WithMore(METHODS["er"]):  # type: ignore[misc]
        margin: float = 0.25

    monkeypatch.setitem(METHODS, "er", WithMore)
    (found,) = load_records(f"{tmp_path}@preset@margin=0.25")
    assert settings_of(found) == {**record.settings, "margin": 0.25}
    assert "margin" not in found.settings  # the record stays as it was
    with pytest.raises(UsageError, match=r"their margin is 0\.25"):
        load_records(f"{tmp_path}@margin=0.5")
    not_loaded = make("own")
    assert settings_of(not_loaded) == not_loaded.settings


def test_unfinished_runs_are_found(make: Make, tmp_path: Path) -> None:
    for name in ("done", "begun"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").write_text("{}")
    make("er").save(tmp_path / "done")
    assert unfinished([tmp_path]) == [tmp_path / "begun"]
    assert unfinished([tmp_path / "b*"]) == [tmp_path / "begun"]
    assert unfinished([tmp_path / "d*"]) == unfinished([Path(f"{tmp_path}@method=er")]) == []


def test_a_folder_may_have_an_at_sign_in_its_name(make: Make, tmp_path: Path) -> None:
    for method in ("er", "sgd"):
        save(make(method), tmp_path / "me@home" / method)
    assert len(load_records(tmp_path / "me@home")) == 2
    for chosen in ("me@home@method=er", "me@home/*@method=er", "me@home/e*", "me@home/er/record.json"):
        assert [r.experiment.method for r in load_records(tmp_path / chosen)] == ["er"], chosen
