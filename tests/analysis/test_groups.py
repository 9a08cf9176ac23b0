"""Which runs belong to one group, and how groups are labelled."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from scommer.analysis.groups import group_runs
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.record import Record

Make = Callable[..., Record]


def preset_run(make: Make, method: str = "scommer", variant: str = "official", seed: int = 0, **change: Any) -> Record:
    """A run with exactly the settings of its preset and these changes."""
    record = make(method, seed)
    record.settings = presets.settings("s-made", method, 30, variant, change)
    record.experiment = replace(record.experiment, variant=variant)
    return record


def test_runs_that_differ_only_in_their_seed_form_a_group(make: Make) -> None:
    found = group_runs([make("scommer", 2), make("er", 0), make("scommer", 0), make("sgd", 0, buffer=None)])
    assert [(g.label, [r.experiment.seed for r in g.records]) for g in found] == [
        ("SGD", [0]), ("ER", [0]), ("SCoMMER", [0, 2]),
    ]  # fmt: skip
    assert found[2].matrices("working").shape == (2, 3, 3)
    assert found[2].memories == ["working", "long_term"]  # the one used for inference last
    assert found[2].matrices()[1].tolist() == make("scommer", 2).matrices["long_term"]["class_il"]


@pytest.mark.parametrize("fact", [{"variant": "paper"}, {"validation": 0.1}])
def test_runs_of_another_variant_or_scored_on_other_images_form_another_group(make: Make, fact: dict[str, Any]) -> None:
    one, other = make("er", 0), make("er", 1)
    other.experiment = replace(other.experiment, **fact)
    found = group_runs([one, other])
    assert [[r.experiment.seed for r in g.records] for g in found] == [[0], [1]]
    assert len({g.label for g in found}) == 2


def test_groups_are_sorted_by_the_size_of_numbers(make: Make) -> None:
    groups = group_runs([make(settings={"epochs": n}) for n in (100, 5, 50, 10)])
    assert [g.records[0].settings["epochs"] for g in groups] == [5, 10, 50, 100]


def test_labels_name_what_differs(make: Make) -> None:
    runs = [make("er"), make("er", buffer=50), make("sgd", buffer=None), make("er", settings={"lr": 0.03})]
    assert [g.label for g in group_runs(runs)] == [
        "SGD",
        "ER, buffer 30, lr 0.1",
        "ER, buffer 30, lr 0.03",
        "ER, buffer 50",
    ]
    assert [g.label for g in group_runs([make("own"), make("der++")])] == ["DER++", "own"]


def test_of_several_differing_settings_labels_name_the_changes_to_the_preset(make: Make) -> None:
    changes: list[dict[str, Any]] = [{}, {"sparse": False, "dropout": "none"}, {"dropout": "none"}]
    runs = [preset_run(make, **change) for change in changes]
    assert {g.label for g in group_runs(runs)} == {
        "SCoMMER, preset",
        "SCoMMER, dropout none, sparse false",
        "SCoMMER, dropout none",
    }
    changes = [{}, {"sparse": False}, {"long_term": False}]
    without = [preset_run(make, dropout="none", **change) for change in changes]
    assert {g.label for g in group_runs(without)} == {  # a change that all share is left out
        "SCoMMER",
        "SCoMMER, sparse false",
        "SCoMMER, long_term false",
    }
    assert {g.label for g in group_runs(runs[::2])} == {"SCoMMER, dropout last", "SCoMMER, dropout none"}


def test_labels_name_changes_to_the_preset_unless_all_runs_share_them(make: Make) -> None:
    ablated = preset_run(make, long_term=False, dropout="none")
    name = "SCoMMER, dropout none, long_term false"
    assert [g.label for g in group_runs([preset_run(make, "er"), ablated])] == ["ER", name]
    assert [g.label for g in group_runs([ablated])] == [name]
    short = [preset_run(make, method, epochs=1) for method in ("er", "sgd")]
    assert [g.label for g in group_runs(short)] == ["SGD", "ER"]


def test_labels_leave_out_the_usual_variant_and_the_preset_comes_first(make: Make) -> None:
    runs = [
        preset_run(make, variant="paper"),
        preset_run(make, ramp=False),
        preset_run(make),
        preset_run(make, activate="block"),
        preset_run(make, "er"),
    ]
    for order in (runs, runs[::-1]):
        assert [g.label for g in group_runs(order)] == [
            "ER",
            "SCoMMER, preset",
            "SCoMMER, activate block",
            "SCoMMER, ramp false",
            "SCoMMER, variant paper",
        ]


def test_a_setting_that_an_older_run_lacks_has_its_default(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class WithMore(METHODS["er"]):  # type: ignore[misc]
        margin: float = 0.25

    older = preset_run(make, "er", seed=0)
    monkeypatch.setitem(METHODS, "er", WithMore)
    newer, other = preset_run(make, "er", seed=1), preset_run(make, "er", seed=1, margin=0.5)
    assert "margin" not in older.settings
    (both,) = group_runs([older, newer])
    assert both.label == "ER"
    assert [g.label for g in group_runs([older, other])] == ["ER, margin 0.25", "ER, margin 0.5"]


def test_runs_that_cannot_be_compared_are_refused(make: Make) -> None:
    with pytest.raises(UsageError, match=r"several streams \(s-made, s-other\)"):
        group_runs([make(), make(stream="s-other")])
    with pytest.raises(UsageError, match="different tasks"):
        group_runs([make(), make("er", tasks=((4, 5), (2, 3), (0, 1)))])
    with pytest.raises(UsageError, match="two runs have the same settings and seed"):
        group_runs([make(), make()])
    with pytest.raises(UsageError, match="no runs"):
        group_runs([])


def test_arrays_of_different_shapes_are_refused(make: Make) -> None:
    one, other = make("er", 0), make("er", 1)
    other.arrays["loss"] = other.arrays["loss"][:-1]
    (group,) = group_runs([one, other])
    with pytest.raises(UsageError, match=r"the runs of ER.* have different shapes of 'loss'"):
        group.arrays("loss")
