"""Sets of runs: scores, arrays and paired differences, against hand computations."""

import math

import pytest
from made_up import record
from scipy.stats import ttest_rel

from scommer.errors import UsageError
from scommer.paper.documents.runs import Runs, paired


def runs(*accuracies: float, **given: object) -> Runs:
    return Runs(tuple(record(seed, a, **given) for seed, a in enumerate(accuracies)))  # type: ignore[arg-type]


def test_scores_by_seed_memory_and_setting() -> None:
    three = runs(66.0, 67.0, 71.0)
    assert (three.values, three.mean, three.min, three.max) == ([66.0, 67.0, 71.0], 68.0, 66.0, 71.0)
    assert three.of("working").values == [56.0, 57.0, 61.0]
    assert three.task_il.mean == 88.0
    assert three.of("working").task_il.mean == 78.0
    assert three.seed(2).value == 71.0
    assert [run.value for run in three.each] == three.values
    assert three.scored_by("working").mean == 58.0


def test_accuracy_after_a_task_is_over_the_tasks_learned_so_far() -> None:
    two = runs(66.0, 70.0)
    assert two.after(1) == [90.0, 90.0]
    assert two.after(2) == [66.0, 70.0]
    assert two.matrix.tolist() == [[90.0, 0.0], [63.0, 73.0]]
    assert two.over_tasks == (90 + 73) / 2


def test_arrays_at_the_end() -> None:
    one = runs(66.0)
    assert (one.last_task, one.other_classes) == (45.0, 15.0)  # of 10, 20 and 30, 60
    assert one.last_task_share == 75.0
    assert one.recency == [pytest.approx(4.0)]  # 0.4 to 0.1
    assert (one.final_loss, one.worst_loss) == (7.0, 9.0)  # of 5 to 9


def test_times_are_of_all_runs() -> None:
    two = runs(66.0, 70.0)
    assert (two.steps, two.minutes, two.side_by_side) == (2000, 2.0, 2)
    assert two.step_ms == 60.0  # 120 s for 1000 steps of each of two


def test_what_differs_between_runs_is_not_given_for_all() -> None:
    mixed = Runs((record(0, 66.0), record(0, 67.0, r=0.4)))
    assert mixed.each[1].changes == {"r": 0.4}
    with pytest.raises(UsageError, match="different settings"):
        _ = mixed.settings
    with pytest.raises(UsageError, match=r"expected one run, got 2: .*seed0-preset, .*seed0-r0\.4"):
        _ = mixed.value
    with pytest.raises(UsageError, match="seed 7"):
        mixed.seed(7)


def test_a_difference_is_paired_by_seed_with_students_interval() -> None:
    a, b = (66.0, 67.0, 71.0), (60.0, 68.0, 64.0)
    d = paired(runs(*a), runs(*b))
    low, high = ttest_rel(a, b).confidence_interval(0.95)
    assert (d.low, d.high) == (pytest.approx(low), pytest.approx(high))
    assert d.mean == pytest.approx(4.0)
    assert (d.ahead, d.behind, d.each) == (2, 1, [6.0, -1.0, 7.0])
    assert not d.clear
    assert paired(runs(66.0, 67.0, 71.0), runs(60.0, 61.0, 65.5)).clear
    assert math.isnan(paired([1.0], [2.0]).low)


def test_only_runs_of_the_same_seeds_and_images_are_paired() -> None:
    with pytest.raises(UsageError, match=r"seeds do not pair: .*\[0, 1\].*\[0\]"):
        paired(runs(66.0, 67.0), runs(60.0))
    with pytest.raises(UsageError, match="same images"):
        paired(runs(66.0), runs(60.0, fingerprint="g"))
