"""Which runs are meant by folders, patterns and conditions."""

from dataclasses import replace

import pytest

from scommer.analysis.selection import changes, load_records as load, unfinished
from scommer.errors import UsageError
from scommer.runs import presets
from scommer.runs.settings import as_dict


def test_runs_are_found_in_folders_and_by_patterns_each_once(make, tmp_path):
    for seed in (0, 1):
        for method in ("er", "scommer"):
            (folder := tmp_path / "runs" / f"{method}-seed{seed}").mkdir(parents=True)
            make(method, seed).save(folder)
    assert len(load([tmp_path])) == 4
    assert len(load([tmp_path, tmp_path / "runs" / "er-seed0"])) == 4
    assert {r.experiment.method for r in load([tmp_path / "runs" / "er-*"])} == {"er"}
    (tmp_path / "empty").mkdir()
    for path, why in (
        ("empty", "no record.json in it or below"),
        ("nowhere", "no such folder"),
        ("x-*", "no such folder"),
    ):
        with pytest.raises(UsageError, match=why):
            load([tmp_path, tmp_path / path])


@pytest.fixture
def varied(make, tmp_path):
    """Seeds 0 and 1 of SCoMMER as the preset has it, dense, and with other ratios; one of ER."""
    for seed in (0, 1):
        for name, method, change in (
            ("preset", "scommer", {}),
            ("dense", "scommer", {"sparse": False, "dropout": "none"}),
            ("ratios", "scommer", {"active": [0.9, 0.9, 0.9, 0.7], "gamma": 1.0}),
            ("er", "er", {}),
        ):
            settings = as_dict(*presets.resolve("s-made", method, 30, "official", change))
            (folder := tmp_path / f"{name}-{seed}").mkdir()
            make(method, seed, settings=settings).save(folder)
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
        ("@active=[.9,.9,.9,.7]@seed=0", ["ratios-0"]),  # as --set takes them
        ("@width=None@method=er", ["er-0", "er-1"]),
        ("@precision=fp32@seed=0@method=er", ["er-0"]),
        ("@sparse=True@buffer=30@seed=0", ["preset-0", "ratios-0"]),
    ],
)
def test_conditions_choose_among_runs(varied, condition, names):
    chosen = load([type(varied)(f"{varied}{condition}")])
    wanted = load([varied / name for name in names])
    facts = [[(r.experiment, r.settings, r.matrices) for r in records] for records in (chosen, wanted)]
    assert len(facts[0]) == len(facts[1])
    assert all(one in facts[1] for one in facts[0])


def test_a_name_may_look_like_a_number(make, tmp_path):
    for name in ("2024", "2025"):
        (folder := tmp_path / name).mkdir()
        make("er", stream=name).save(folder)
    (found,) = load([type(tmp_path)(f"{tmp_path}@stream=2024")])
    assert found.stream.name == "2024"


def test_of_a_stream_without_presets_that_counts_which_was_given(make, tmp_path):
    for name, given in (("usual", {}), ("slow", {"lr": 0.01})):
        (folder := tmp_path / name).mkdir()
        record = make("er", settings={"mean": [0.3], "network": "small", **given})
        record.experiment = replace(record.experiment, given=given)
        record.save(folder)
    (usual,) = load(f"{tmp_path}@preset")
    assert (usual.experiment.given, changes(usual)) == ({}, "")
    (slow,) = load(f"{tmp_path}@lr=0.01")
    assert changes(slow) == "lr=0.01"


def test_runs_that_are_not_finished_are_known(make, tmp_path):
    for name in ("done", "begun"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").write_text("{}")
    make("er").save(tmp_path / "done")
    assert unfinished([tmp_path]) == [tmp_path / "begun"]
    assert unfinished([tmp_path / "b*"]) == [tmp_path / "begun"]
    assert unfinished([tmp_path / "d*"]) == unfinished([type(tmp_path)(f"{tmp_path}@method=er")]) == []


def test_a_path_with_the_sign_is_a_path_as_far_as_there_is_one(make, tmp_path):
    for method in ("er", "sgd"):
        (folder := tmp_path / "me@home" / method).mkdir(parents=True)
        make(method).save(folder)
    home = tmp_path / "me@home"
    assert len(load([home])) == 2
    for chosen in ("me@home@method=er", "me@home/*@method=er", "me@home/e*", "me@home/er/record.json"):
        assert [r.experiment.method for r in load([tmp_path / chosen])] == ["er"], chosen


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("@gamma=2", "meets @gamma=2: there gamma is 0.15 or 1.0$"),
        ("@spars=false", "did you mean 'sparse'"),
        ("@method=er@r=0.5", "no run in .*@method=er meets @r=0.5: they have no r$"),
        ("@seed", "'@seed' is not a condition: write @name=value, or @preset"),
        ("@", "'@' is not a condition"),
        ("@sparse=0", "there sparse is false or true"),  # a word, not a number
        ("@seed=true", "there seed is 0 or 1"),
        ("@sparse=false@preset", "no run in .*@sparse=false meets @preset: all have changes, such as dropout=none"),
    ],
)
def test_conditions_that_no_run_meets_tell_what_there_is(varied, condition, message):
    with pytest.raises(UsageError, match=message):
        load([type(varied)(f"{varied}{condition}")])
