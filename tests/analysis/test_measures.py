"""Statistics against independent computations: by hand, pair by pair, or by another library."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.metrics.pairwise import cosine_similarity

from scommer.analysis import measures
from scommer.analysis.groups import group_runs
from scommer.analysis.summary import forgotten_table, measure_table
from scommer.errors import UsageError
from scommer.runs.record import Record, find

RECORDS = Path(__file__).parents[2] / "docs" / "records"
RNG = np.random.default_rng(3)


def test_recency_bias_is_the_last_task_over_the_mean_of_the_earlier_ones():
    p = np.array([0.10, 0.06, 0.14, 0.10, 0.35, 0.25])
    by_task = [0.16, 0.24, 0.60]
    assert measures.recency_bias(p, [[0, 1], [2, 3], [4, 5]]) == pytest.approx(by_task[2] / np.mean(by_task[:2]))
    assert measures.recency_bias(np.full(6, 1 / 6), [[0, 1], [2, 3], [4, 5]]) == pytest.approx(1)
    assert np.isnan(measures.recency_bias(np.array([0, 0, 0, 0, 0.5, 0.5]), [[0, 1], [2, 3], [4, 5]]))


def test_a_class_that_comes_back_counts_by_its_last_appearance():
    p = np.array([0.5, 0.2, 0.1, 0.05, 0.15])
    assert measures.last_seen([[0, 1], [1, 2], [0]], 5).tolist() == [2, 1, 1, -1, -1]
    assert measures.recency_bias(p, [[0, 1], [1, 2], [0]]) == pytest.approx(0.5 / 0.15)  # 3 and 4 were never seen
    assert np.isnan(measures.recency_bias(p, [[0, 1]]))  # no task is earlier


def test_calibration_error_equals_that_of_the_single_predictions():
    confidence, hit = RNG.uniform(0.1, 1, 400), RNG.random(400) < 0.4
    bins = np.zeros((15, 3))
    for c, h in zip(confidence, hit, strict=True):
        bins[int(c * 15)] += (1, c, h)
    expected = 0.0
    for b in range(15):
        mine = (confidence >= b / 15) & (confidence < (b + 1) / 15)
        if mine.any():
            expected += mine.mean() * abs(confidence[mine].mean() - hit[mine].mean())
    assert measures.calibration_error(bins) == pytest.approx(100 * expected)
    assert np.isnan(measures.calibration_error(np.zeros((15, 3))))  # no images


def test_similarity_is_the_cosine():
    a = RNG.integers(0, 20, (5, 9)).astype(np.uint32)
    assert measures.code_similarity(a) == pytest.approx(cosine_similarity(a))
    a[2] = 0
    assert np.isnan(measures.code_similarity(a)[2]).all()
    assert not np.isnan(np.delete(np.delete(measures.code_similarity(a), 2, 0), 2, 1)).any()


@pytest.mark.parametrize("tasks", [[[0, 1], [2, 3], [4, 5]], [[0, 1, 2], [2, 3], [0, 4, 3]]], ids=["apart", "gcil"])
def test_overlap_is_the_mean_over_pairs_that_shared_a_task_and_that_did_not(tasks):
    a = RNG.integers(0, 20, (7, 9))
    met, apart = [], []
    for c, d in combinations(sorted({c for t in tasks for c in t}), 2):  # class 6 is in no task
        cosine = a[c] @ a[d] / np.sqrt((a[c] @ a[c]) * (a[d] @ a[d]))
        (met if any({c, d} <= set(t) for t in tasks) else apart).append(cosine)
    assert measures.code_overlap(a, tasks) == pytest.approx((np.mean(met), np.mean(apart)))


def test_overlap_of_a_single_task_has_no_pairs_between():
    within, between = measures.code_overlap(RNG.integers(1, 9, (3, 4)), [[0, 1, 2]])
    assert within > 0
    assert np.isnan(between)


def test_correlation_is_pearsons_r_over_the_units_of_each_class():
    a, p = RNG.integers(0, 50, (4, 30)).astype(np.int32), RNG.random((4, 30)).astype(np.float16)
    found = measures.code_correlation(a, p)
    assert found == pytest.approx([pearsonr(a[c], p[c].astype(float)).statistic for c in range(4)])
    p[1] = 0  # a class whose code was never learned
    assert np.isnan(measures.code_correlation(a, p)[1])


def test_the_share_of_forgetting():
    accuracy = np.array([[90.0, 40.0, 0.0, 10.0], [60.0, 70.0, 0.0, 20.0], [50.0, 60.0, 95.0, 30.0]])
    assert measures.forgotten(accuracy).tolist() == [40, 10, 0, 0]  # the last two gained
    assert measures.share_of_forgetting(accuracy).tolist() == [80, 20, 0, 0]
    assert np.isnan(measures.share_of_forgetting(np.zeros((3, 4)))).all()


def test_the_measures_of_a_real_run():
    record = Record.load(next(f for f in find(RECORDS) if "scommer-30-seed0" in f.name))
    found = measures.measures(record, "long_term")
    assert list(found) == ["recency bias", "ECE (%)", "overlap within", "overlap between", "r with P_s"]
    p = record.arrays["task_probability/long_term"]
    assert found["recency bias"] == pytest.approx(p[-1] / p[:-1].mean())
    a, p_s = record.arrays["activity/long_term/2"], record.arrays["p_s/2"].astype(float)
    assert found["r with P_s"] == pytest.approx(np.mean([np.corrcoef(a[c], p_s[c])[0, 1] for c in range(10)]))
    assert set(measures.measures(record, "long_term/working")) == {"recency bias", "ECE (%)"}  # no activity of its own


def test_runs_without_the_data_lack_the_statistic(make):
    assert measures.measures(make(arrays=False), "working") == {}
    assert measure_table(group_runs([make(arrays=False)])) is None
    assert forgotten_table(group_runs([make(arrays=False)])) is None
    joint = measures.measures(make("joint"), "working")
    assert "recency bias" not in joint  # no task is the last
    assert joint["ECE (%)"] > 0
    assert forgotten_table(group_runs([make("joint")])) is None
    assert "r with P_s" not in measures.measures(make("er"), "working")


def by_column(table):
    assert table is not None
    return {column.name: [row.cells[i].text for row in table.rows] for i, column in enumerate(table.columns)}


def test_tables_show_the_statistics(make):
    record = make()
    columns = by_column(measure_table(group_runs([record])))
    assert columns["memory"] == ["working", "long_term"]
    bins = record.arrays["reliability/long_term"]
    assert columns["ECE (%)"][1] == f"{100 * np.abs(bins[:, 1] - bins[:, 2]).sum() / bins[:, 0].sum():.1f}"
    worst = by_column(forgotten_table(group_runs([record]), most=2))
    a = record.arrays["class_accuracy/long_term"]
    lost = a[:-1].max(0) - a[-1]
    assert worst["class"] == [f"class_{c}" for c in np.argsort(-lost)[:2]]
    assert worst["lost"] == [f"{v:.1f}" for v in sorted(lost)[:-3:-1]]
    assert worst["at the end"] == [f"{a[-1, c]:.1f}" for c in np.argsort(-lost)[:2]]
    assert worst["best"] == [f"{a[:-1, c].max():.1f}" for c in np.argsort(-lost)[:2]]


def test_a_class_without_test_images_lost_nothing():
    a = np.array([[90.0, np.nan, 10.0], [40.0, np.nan, 30.0], [60.0, np.nan, 20.0]])
    assert measures.forgotten(a).tolist() == [30.0, 0.0, 10.0]
    assert measures.share_of_forgetting(a).tolist() == [75.0, 0.0, 25.0]


def test_errors_name_the_missing_array(make):
    with pytest.raises(UsageError, match=r"holds no 'loss': it has no arrays\.npz"):
        measures.array(make(arrays=False), "loss")
    with pytest.raises(UsageError, match="holds no 'p_h/9'"):
        measures.array(make(), "p_h/9")
    with pytest.raises(UsageError, match="er ran without semantic dropout"):
        measures.learned_code(make("er"))
    with pytest.raises(UsageError, match="no activity of units"):
        measures.last_stage(make(arrays=False))


def test_arrays_under_other_names_are_no_stage(make):
    record = make()
    record.arrays |= {"activity/9": np.ones((6, 7)), "activity/working/last": np.ones((6, 7))}
    assert measures.last_stage(record) == 2


def test_a_p_s_that_does_not_fit_the_activity_is_not_used(make):
    record = make(units=7)
    record.arrays |= {"p_s/2": np.ones((6, 3))}
    assert "r with P_s" not in measures.measures(record, "working")
    with pytest.raises(UsageError, match="another shape"):
        measures.learned_code(record)
