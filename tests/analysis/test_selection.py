"""Which runs are meant by folders, patterns and conditions."""

import pytest

from scommer import presets
from scommer.analysis.selection import load
from scommer.errors import UsageError


def test_runs_are_found_in_folders_and_by_patterns_each_once(make, tmp_path):
    for seed in (0, 1):
        for method in ("er", "scommer"):
            (folder := tmp_path / "runs" / f"{method}-seed{seed}").mkdir(parents=True)
            make(method, seed).save(folder)
    assert len(load([tmp_path])) == 4
    assert len(load([tmp_path, tmp_path / "runs" / "er-seed0"])) == 4
    assert {r.experiment["method"] for r in load([tmp_path / "runs" / "er-*"])} == {"er"}
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
            settings = presets.as_dict(*presets.resolve("s-made", method, 30, "official", change))
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
        ("@sparse=True@buffer=30@seed=0", ["preset-0", "ratios-0"]),
    ],
)
def test_conditions_choose_among_runs(varied, condition, names):
    chosen = load([type(varied)(f"{varied}{condition}")])
    wanted = load([varied / name for name in names])
    assert sorted(map(repr, chosen)) == sorted(map(repr, wanted))


def test_a_path_with_the_sign_is_a_path_where_there_is_one(make, tmp_path):
    (folder := tmp_path / "me@home").mkdir()
    make("er").save(folder)
    assert len(load([folder])) == 1


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("@gamma=2", "meets gamma=2: there gamma is 0.15, 1.0$"),
        ("@spars=false", "did you mean 'sparse'"),
        ("@seed", "'seed' is not a setting: write name=value"),
        ("@sparse=false@preset", "meets preset: each has changes, such as dropout=none, sparse=false"),
    ],
)
def test_conditions_that_no_run_meets_tell_what_there_is(varied, condition, message):
    with pytest.raises(UsageError, match=message):
        load([type(varied)(f"{varied}{condition}")])
