"""Paired differences, against another implementation of the interval."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from scommer.analysis.comparison import Difference, compare, comparison_table, notes, unpaired_streams
from scommer.errors import UsageError


def test_the_interval_is_students_of_the_paired_differences():
    a, b = (70.0, 72.5, 69.0, 75.0), (68.0, 71.0, 69.5, 70.0)
    d = Difference("Class-IL accuracy", a, b)
    expected = ttest_rel(a, b).confidence_interval(0.95)
    assert d.mean == pytest.approx(2.0)
    assert (d.mean - d.margin, d.mean + d.margin) == pytest.approx((expected.low, expected.high))
    assert not d.clear
    assert Difference("x", (3.0, 4.0, 5.0), (1.0, 2.1, 2.9)).clear
    one = Difference("x", (3.0,), (1.0,))
    assert math.isnan(one.margin)
    assert not one.clear


def test_runs_are_paired_by_seed(make):
    a, b = [make("scommer", s) for s in (3, 0, 1)], [make("er", s) for s in (1, 7, 0)]
    (found,) = compare(a, b)
    assert found.labels == ("SCoMMER", "ER")
    assert (found.seeds, found.unpaired) == ((0, 1), ((3,), (7,)))
    first = found.differences[0]
    assert first.measure == "Class-IL accuracy"
    assert first.a == tuple(make("scommer", s).accuracy() for s in (0, 1))
    assert first.b == tuple(make("er", s).accuracy() for s in (0, 1))
    assert [d.measure for d in found.differences[1:]] == [
        "Class-IL forgetting",
        "Task-IL accuracy",
        "Task-IL forgetting",
    ]
    assert notes(found) == [
        "Few pairs (2): the interval holds only if differences between seeds are normal.",
        "Only in A, left out: seed 3.", "Only in B, left out: seed 7.",
    ]  # fmt: skip


def test_labels_have_the_precision_if_nothing_else_differs(make):
    half, full = [make("er", s) for s in (0, 1)], [make("er", s) for s in (0, 1)]
    assert compare(half, full)[0].labels == ("ER", "ER")
    for r, precision in zip(half + full, ["bf16"] * 2 + ["fp32"] * 2, strict=True):
        r.device = replace(r.device, precision=precision)
    assert compare(half, full)[0].labels == ("ER, bf16", "ER, fp32")
    half[1].device = replace(half[1].device, precision="tf32")
    assert compare(half, full)[0].labels[0] == "ER, bf16/tf32"
    assert compare(half, [make("der++", s) for s in (0, 1)])[0].labels == ("ER", "DER++")


def shifted(record, points):
    """The same run with this many points more."""
    for by_setting in record.scores.values():
        by_setting["class_il"]["accuracy"] += points
    return record


def intervals(one):
    table = comparison_table(one)
    (at,) = (i for i, column in enumerate(table.columns) if column.name == "95 % interval")
    return [row.cells[at].text for row in table.rows]


def with_matrix(record, rows):
    """The same run with this accuracy after each task, in Class-IL."""
    r = np.array(rows, float)
    record.matrices[record.inference]["class_il"] = r
    record.scores[record.inference]["class_il"]["forgetting"] = float((r[:-1, :-1].max(0) - r[-1, :-1]).mean())
    return record


LEARNED = [[95, 0, 0], [70, 94, 0], [50, 60, 90]]  # forgets 39.5
IDLE = [[20, 0, 0], [18, 22, 0], [12, 16, 20]]  # forgets 7, of 21
KEPT = [[80, 0, 0], [78, 82, 0], [76, 80, 80]]  # learned less, but kept more


def test_a_low_forgetting_is_explained_where_little_was_learned(make):
    def said(a, b):
        (found,) = compare([with_matrix(make("er"), a)], [with_matrix(make("der++"), b)])
        return [line for line in notes(found) if "Class-IL forgetting" in line]

    assert said(IDLE, LEARNED) == [
        "Class-IL forgetting is lower in A only because less was learned: before the last task, tasks reach 21.0 % "
        "there and 94.5 % in B, and 14.0 % and 55.0 % are left at the end."
    ]
    assert "lower in B only" in said(LEARNED, IDLE)[0]
    assert said(KEPT, LEARNED) == []
    assert said(LEARNED, LEARNED) == []


def test_one_pair_has_no_interval_and_many_need_no_note(make):
    (single,) = compare([make("er", s) for s in range(3)], [make("der++", 2)])
    assert notes(single)[0] == "Too few pairs: only seed 2 is in both, and an interval needs at least two."
    assert set(intervals(single)) == {"–"}
    (many,) = compare([make("er", s) for s in range(5)], [make("der++", s) for s in range(5)])
    assert notes(many) == []
    for d, cell in zip(many.differences, intervals(many), strict=True):
        low, high = map(float, cell.removesuffix(" *").split(" to "))
        assert low < d.mean < high
        assert cell.endswith(" *") == (low > 0 or high < 0)
    (apart,) = compare([make("er", s) for s in range(2)], [shifted(make("er", s), 50 + s) for s in range(2)])
    assert intervals(apart)[0].endswith(" *")
    assert comparison_table(apart).rows[0].strong


def test_each_stream_is_compared_separately(make):
    gcil = {"stream": "gcil-made", "kind": "gcil"}
    found = compare([make("er"), make("er", **gcil), make("er", stream="s-alone")], [make("sgd"), make("sgd", **gcil)])
    assert [c.stream for c in found] == ["gcil-made", "s-made"]
    assert unpaired_streams([make("er"), make("er", stream="s-alone")], [make("er")]) == [
        "Only in A, left out: s-alone."
    ]
    assert unpaired_streams([make("er")], [make("sgd")]) == []
    assert [d.measure for d in found[0].differences] == ["Class-IL nested mean", "Class-IL last", "Class-IL forgetting"]
    (joint,) = compare([make("joint", 0)], [make("er", 0)])
    assert [d.measure for d in joint.differences] == [
        "Class-IL accuracy",
        "Task-IL accuracy",
    ]  # it never forgets


def test_a_note_names_precisions_that_differ(make):
    a, b = [make("scommer", s) for s in (0, 1)], [make("er", s) for s in (0, 1)]
    for run, precision in zip([*a, *b], ("tf32", "bf16", "bf16", "bf16"), strict=True):
        run.device = replace(run.device, precision=precision)
    (found,) = compare(a, b)
    assert "Precisions: A has bf16/tf32, B bf16." in notes(found)
    (found,) = compare(a[1:], b[1:])
    assert not any("Precisions" in note for note in notes(found))


def test_labels_tell_two_settings_of_one_method_apart(make):
    (found,) = compare([make("er", buffer=50)], [make("er", settings={"lr": 0.2})])
    assert found.labels == ("ER, buffer 50", "ER, buffer 30, lr 0.2")


def test_runs_that_cannot_be_paired_are_refused(make):
    with pytest.raises(UsageError, match="A mixes settings on s-made \\(ER, buffer 30; ER, buffer 50\\)"):
        compare([make("er"), make("er", buffer=50)], [make("sgd")])
    with pytest.raises(UsageError, match="share no stream: A has s-made, B has s-other"):
        compare([make("er")], [make("er", stream="s-other")])
    with pytest.raises(UsageError, match="on s-made A has seeds 0, 1, B has seed 2"):
        compare([make("er", 0), make("er", 1)], [make("sgd", 2)])
    other = make("sgd")
    other.stream = replace(other.stream, fingerprint="another")
    with pytest.raises(UsageError, match="did not learn the same images"):
        compare([make("er")], [other])
