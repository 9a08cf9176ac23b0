"""Which runs belong together, and under what name."""

from dataclasses import replace

import pytest

from scommer.analysis.groups import groups
from scommer.errors import UsageError
from scommer.runs import presets
from scommer.runs.settings import as_dict


def test_runs_that_differ_in_the_seed_alone_belong_together(make):
    found = groups([make("scommer", 2), make("er", 0), make("scommer", 0), make("sgd", 0, buffer=None)])
    assert [(g.label, [r.experiment.seed for r in g.records]) for g in found] == [
        ("SGD", [0]), ("ER", [0]), ("SCoMMER", [0, 2]),
    ]  # fmt: skip
    assert found[2].matrices("working").shape == (2, 3, 3)
    assert found[2].memories == ["working", "long_term"]  # the one that answers last
    assert found[2].matrices()[1].tolist() == make("scommer", 2).matrices["long_term"]["class_il"]


def test_sets_are_in_the_order_of_their_numbers(make):
    sets = groups([make(settings={"epochs": n}) for n in (100, 5, 50, 10)])
    assert [g.records[0].settings["epochs"] for g in sets] == [5, 10, 50, 100]


def test_names_tell_apart_what_differs(make):
    runs = [make("er"), make("er", buffer=50), make("sgd", buffer=None), make("er", settings={"lr": 0.03})]
    assert [g.label for g in groups(runs)] == [
        "SGD",
        "ER, buffer 30, lr 0.1",
        "ER, buffer 30, lr 0.03",
        "ER, buffer 50",
    ]
    assert [g.label for g in groups([make("own"), make("der++")])] == ["DER++", "own"]


def test_of_several_settings_those_are_named_that_are_not_the_presets(make):
    def run(**change):
        return make("scommer", settings=as_dict(*presets.resolve("s-made", "scommer", 30, overrides=change)))

    runs = [run(), run(sparse=False, dropout="none"), run(dropout="none")]
    assert {g.label for g in groups(runs)} == {
        "SCoMMER, preset",
        "SCoMMER, dropout none, sparse false",
        "SCoMMER, dropout none",
    }
    without = [run(dropout="none", **change) for change in ({}, {"sparse": False}, {"long_term": False})]
    assert {g.label for g in groups(without)} == {  # none of them is the preset
        "SCoMMER, long_term true, sparse true",
        "SCoMMER, sparse false",
        "SCoMMER, long_term false",
    }
    assert {g.label for g in groups(runs[::2])} == {"SCoMMER, dropout last", "SCoMMER, dropout none"}


def test_what_was_changed_is_named_beside_other_methods_and_alone_too(make):
    """Unless all have it: then it tells nothing apart."""

    def run(method, **change):
        settings = as_dict(*presets.resolve("s-made", method, 30, overrides=change))
        return make(method, settings=settings)

    ablated = run("scommer", long_term=False, dropout="none")
    name = "SCoMMER, dropout none, long_term false"
    assert [g.label for g in groups([run("er"), ablated])] == ["ER", name]
    assert [g.label for g in groups([ablated])] == [name]
    assert [g.label for g in groups([run("er", epochs=1), run("sgd", epochs=1)])] == ["SGD", "ER"]


def test_the_usual_variant_goes_without_saying_and_the_preset_comes_first(make):
    def run(variant="official", method="scommer", **change):
        record = make(method, settings=as_dict(*presets.resolve("s-made", method, 30, variant, change)))
        record.experiment = replace(record.experiment, variant=variant)
        return record

    runs = [run("paper"), run(ramp=False), run(), run(activate="block"), run(method="er")]
    for order in (runs, runs[::-1]):
        assert [g.label for g in groups(order)] == [
            "ER",
            "SCoMMER, preset",
            "SCoMMER, activate block",
            "SCoMMER, ramp false",
            "SCoMMER, variant paper",
        ]


def test_what_cannot_be_set_side_by_side_is_refused(make):
    with pytest.raises(UsageError, match="several streams \\(s-made, s-other\\)"):
        groups([make(), make(stream="s-other")])
    with pytest.raises(UsageError, match="not of the same tasks"):
        groups([make(), make("er", tasks=((4, 5), (2, 3), (0, 1)))])
    with pytest.raises(UsageError, match="two runs of one seed"):
        groups([make(), make()])
    with pytest.raises(UsageError, match="no runs"):
        groups([])
