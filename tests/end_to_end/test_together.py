"""Learners side by side are each what they would be alone."""

from pathlib import Path

import numpy as np
import pytest

from scommer import Experiment, Record, run
from scommer.running import Failed, run_together

QUICK = {"epochs": 2, "width": 4}


def assert_same(a: Record, b: Record) -> None:
    assert (a.name, a.matrices, a.scores, a.untrained) == (b.name, b.matrices, b.scores, b.untrained)
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name], err_msg=name)


def test_each_seed_is_what_it_is_alone() -> None:
    experiments = [Experiment("s-digits", "scommer", 20, seed, settings=QUICK) for seed in (0, 1, 2)]
    together = run_together(experiments)
    for experiment, record in zip(experiments, together, strict=True):
        alone = run(experiment)
        assert_same(record, alone)
        assert (record.times["together"], alone.times["together"]) == (3, 1)
    assert len({str(record.matrices) for record in together}) == 3


def test_methods_buffers_and_settings_may_differ(tmp_path: Path) -> None:
    experiments = [
        Experiment("s-digits", "er", 20, settings=QUICK),
        Experiment("s-digits", "der++", 40, settings=QUICK),
        Experiment("s-digits", "sgd", settings={**QUICK, "epochs": 1}),
        Experiment("s-digits", "joint", settings=QUICK),
        Experiment("s-digits", "scommer", 20, settings={**QUICK, "r": 0.9}),
    ]
    records = run_together(experiments, out=tmp_path)
    assert [r.experiment["method"] for r in records] == ["er", "der++", "sgd", "joint", "scommer"]
    assert len(list(tmp_path.rglob("record.json"))) == 5
    for experiment, record in zip(experiments, records, strict=True):
        assert_same(Record.load(tmp_path / record.name), record)
        assert_same(record, run(experiment))


def test_finished_runs_are_read_and_the_others_run(tmp_path: Path) -> None:
    first = run(Experiment("s-digits", "sgd", seed=0, settings=QUICK), out=tmp_path)
    written = (tmp_path / first.name / "record.json").stat().st_mtime_ns
    both = run_together([Experiment("s-digits", "sgd", seed=s, settings=QUICK) for s in (0, 1)], out=tmp_path)
    assert_same(both[0], first)
    assert (tmp_path / first.name / "record.json").stat().st_mtime_ns == written
    assert both[1].experiment["seed"] == 1
    assert both[1].times["together"] == 1  # the first had not to be run


def test_a_run_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    good = Experiment("s-digits", "sgd", settings=QUICK)
    broken = Experiment("s-digits", "sgd", settings={**QUICK, "lr": 1e30})
    with pytest.raises(Failed, match="the loss became") as failed:
        run_together([broken, good], out=tmp_path)
    (folder,) = (p.parent for p in tmp_path.rglob("record.json"))
    assert [r.name for r in failed.value.records] == [folder.name]
    assert_same(Record.load(folder), run(good))


def test_the_same_experiment_twice_is_run_once(tmp_path: Path) -> None:
    one = Experiment("s-digits", "sgd", settings=QUICK)
    first, second = run_together([one, one], out=tmp_path)
    assert first is second
