"""The presets, compared with tables from the paper and from notes on its published implementation."""

import json
import tomllib
from copy import deepcopy
from dataclasses import fields
from importlib.resources import files

import pytest

from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.methods.scommer import SCoMMER
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.runs.settings import as_dict
from scommer.streams import STREAMS

CIFAR_STREAMS = ("s-cifar10", "s-cifar100", "gcil-uniform", "gcil-longtail")

# scommer.tex, tab:hyperparams "Selected parameters for SCoMMER":
# stream, buffer, activation sparsity of the last block, η, π_h, π_s, γ, r
TABLE_S1 = [
    ("s-cifar10", 200, 0.8, 0.1, 0.5, 2.0, 0.15, 0.5),
    ("s-cifar10", 500, 0.8, 0.1, 0.5, 2.0, 0.15, 0.7),
    ("s-cifar100", 200, 0.9, 0.1, 0.5, 3.0, 0.15, 0.1),
    ("s-cifar100", 500, 0.9, 0.1, 0.5, 3.0, 0.15, 0.1),
    ("gcil-uniform", 200, 0.9, 0.05, 0.5, 3.0, 0.2, 0.6),
    ("gcil-uniform", 500, 0.9, 0.05, 0.5, 3.0, 0.2, 0.6),
    ("gcil-longtail", 200, 0.9, 0.05, 0.5, 2.0, 0.2, 0.5),
    ("gcil-longtail", 500, 0.9, 0.05, 0.5, 3.0, 0.2, 0.6),
]

# As published, by stream, method and buffer: epochs and settings. Nothing is for DER++ on S-CIFAR100 with 200.
BASELINES = [
    ("s-cifar10", "sgd", 200, 50, {"lr": 0.1}),
    ("s-cifar10", "joint", 200, 50, {"lr": 0.1}),
    ("s-cifar10", "er", 200, 50, {"lr": 0.1}),
    ("s-cifar10", "er", 500, 50, {"lr": 0.1}),
    ("s-cifar10", "der++", 200, 50, {"lr": 0.03, "alpha": 0.1, "beta": 0.5}),
    ("s-cifar10", "der++", 500, 50, {"lr": 0.03, "alpha": 0.2, "beta": 0.5}),
    ("s-cifar10", "cls-er", 200, 50, {"lr": 0.1, "reg": 0.15, "r_stable": 0.1, "r_plastic": 0.3}),
    ("s-cifar10", "cls-er", 500, 50, {"lr": 0.1, "reg": 0.15, "r_stable": 0.1, "r_plastic": 0.9}),
    ("s-cifar100", "joint", 200, 50, {"lr": 0.1}),
    ("s-cifar100", "er", 200, 50, {"lr": 0.1}),
    ("s-cifar100", "er", 500, 50, {"lr": 0.1}),
    ("s-cifar100", "der++", 200, 50, {"lr": 0.03, "alpha": 0.1, "beta": 0.5}),
    ("s-cifar100", "der++", 500, 50, {"lr": 0.03, "alpha": 0.1, "beta": 0.5}),
    ("gcil-uniform", "sgd", 200, 100, {"lr": 0.1}),
    ("gcil-uniform", "joint", 200, 100, {"lr": 0.1}),
    ("gcil-uniform", "er", 200, 100, {"lr": 0.1}),
    ("gcil-uniform", "er", 500, 100, {"lr": 0.1}),
    ("gcil-uniform", "der++", 200, 100, {"lr": 0.1, "alpha": 0.2, "beta": 0.5}),
    ("gcil-uniform", "der++", 500, 100, {"lr": 0.1, "alpha": 0.2, "beta": 0.6}),
    ("gcil-uniform", "cls-er", 200, 200, {"lr": 0.1, "reg": 0.15, "r_stable": 0.6, "r_plastic": 0.7}),
    ("gcil-uniform", "cls-er", 500, 100, {"lr": 0.1, "reg": 0.15, "r_stable": 0.6, "r_plastic": 0.9}),
    ("gcil-longtail", "sgd", 200, 100, {"lr": 0.1}),
    ("gcil-longtail", "joint", 200, 100, {"lr": 0.1}),
    ("gcil-longtail", "er", 200, 100, {"lr": 0.1}),
    ("gcil-longtail", "er", 500, 100, {"lr": 0.1}),
    ("gcil-longtail", "der++", 200, 100, {"lr": 0.1, "alpha": 0.2, "beta": 0.6}),
    ("gcil-longtail", "der++", 500, 100, {"lr": 0.1, "alpha": 0.2, "beta": 0.8}),
    ("gcil-longtail", "cls-er", 200, 100, {"lr": 0.1, "reg": 0.1, "r_stable": 0.6, "r_plastic": 0.7}),
    ("gcil-longtail", "cls-er", 500, 100, {"lr": 0.1, "reg": 0.1, "r_stable": 0.6, "r_plastic": 0.7}),
]

# docs/variants.md: what the text and the published implementation say
VARIANTS = {
    "pi_h": (0.5, [0.5, 0.5, 5.0, 5.0]),
    "warmup": (29, 29),  # the text has no value
    "joint_batch": (True, False),  # one loss over the interleaved batch; two passes, two means
    "replay_dropout": (True, False),  # only the counter is disabled; neither dropout nor counting
    "ramp": (False, True),  # α = 0.999; min(1 - 1/(step + 1), 0.999)
    "activate": ("block", "stage"),
    "threshold": ("k-1", "k"),  # above the k-th highest; exactly k
    "initial_p_h": ("random", "first"),
    "mask_choice": ("unit", "class"),  # where P_s[y] > 0; where the row's sum is > 0
    "refresh_at_task_end": (False, True),
    "heterogeneous_draw": ("sample", "batch"),
    "semantic_draw": ("sample", "batch"),
    "alpha": (0.999, 0.999),
    "statistics": ("replay", "replay"),
    "dropout": ("last", "last"),
    "offer": ("every_epoch", "every_epoch"),
    "batch": (32, 32),
    "replay": (32, 32),
    "momentum": (0.0, 0.0),
    "weight_decay": (0.0, 0.0),
    "drop_last": (True, True),
    "answer": ("long_term", "long_term"),
}


def settings(stream, method="scommer", buffer=200, variant="official", **overrides):
    made, training = presets.resolve(stream, method, buffer, variant=variant, overrides=overrides)
    return as_dict(made, training)


def expect(found, wanted):
    assert {name: found[name] for name in wanted} == wanted


# --- the published numbers


@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize(("stream", "buffer", "active", "lr", "pi_h", "pi_s", "gamma", "r"), TABLE_S1)
def test_scommer_has_the_papers_hyperparameters(stream, buffer, active, lr, pi_h, pi_s, gamma, r, variant):
    found = settings(stream, buffer=buffer, variant=variant)
    expect(found, {"active": [0.9, 0.9, 0.9, active], "lr": lr, "pi_s": pi_s, "gamma": gamma, "r": r})
    expect(found, {"alpha": 0.999, "batch": 32, "replay": 32, "epochs": 50, "dropout": "last"})  # its caption
    if variant == "paper":
        assert found["pi_h"] == pi_h


@pytest.mark.parametrize(("stream", "method", "buffer", "epochs", "wanted"), BASELINES)
def test_baselines_have_their_published_settings(stream, method, buffer, epochs, wanted):
    expect(settings(stream, method, buffer), {**wanted, "epochs": epochs})


def test_sgd_on_s_cifar100_has_one_of_the_two_published_learning_rates():
    assert settings("s-cifar100", "sgd")["lr"] in (0.03, 0.1)


@pytest.mark.parametrize("stream", CIFAR_STREAMS)
@pytest.mark.parametrize("method", [name for name, kind in METHODS.items() if kind.descends])
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_every_method_trains_the_same_way(stream, method, variant):
    """As published: plain SGD, batches of 32, ResNet-18, CIFAR-10's normalisation, crop and flip."""
    found = settings(stream, method, variant=variant)
    decay = 5e-4 if method == "lwf" else 0.0  # LwF's is published
    expect(found, {"momentum": 0.0, "weight_decay": decay, "batch": 32, "replay": 32, "network": "resnet18"})
    expect(found, {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2615], "pad": 4, "flip": True})
    expect(found, {"width": None, "depth": None, "stages": None})
    if method == "cls-er":
        expect(found, {"alpha": 0.999, "ramp": True})


@pytest.mark.parametrize("stream", CIFAR_STREAMS)
@pytest.mark.parametrize("buffer", [200, 500])
def test_variants_differ_where_the_text_and_the_implementation_do(stream, buffer):
    paper, official = (settings(stream, buffer=buffer, variant=v) for v in ("paper", "official"))
    expect(paper, {name: text for name, (text, _) in VARIANTS.items()})
    expect(official, {name: published for name, (_, published) in VARIANTS.items()})


def test_a_variant_sets_only_what_differs_from_the_defaults_and_no_cell_overrides_it():
    found = tables()
    assert found["variant"]["official"] == {}  # the defaults are what was published: see below
    assert found["variant"]["paper"]["scommer"] == {
        n: text for n, (text, published) in VARIANTS.items() if text != published
    }
    for stream in CIFAR_STREAMS:
        cell = found["cell"][stream]["scommer"]
        for table in (cell, *(inner for inner in cell.values() if isinstance(inner, dict))):
            assert not set(VARIANTS) & set(table)


def test_plus_has_one_set_of_values_for_every_buffer_and_two_numbers_that_vary():
    shared = {f.name for kind in (SCoMMER, Training) for f in fields(kind)} - {
        "network", "width", "depth", "stages", "epochs", "pad", "flip", "mean", "std",
        "warmup", "alpha", "pi_h", "pi_s",
    }  # fmt: skip

    def values(stream, buffer):
        found = settings(stream, buffer=buffer, variant="plus")
        return {name: value for name, value in found.items() if name in shared}

    usual = values("s-cifar10", 200)
    assert usual["horizon"] > 0  # so that alpha is not used
    assert usual["dropout"] == "none"  # so that warmup and π are not used
    short = {"balance": 1.0, "mirrored": False}  # tasks of few steps; images are not flipped
    many = {"horizon": 0.6, "turned": 0.0}  # classes per task
    again = {"horizon": 3.0}  # classes come back
    untouched = {"turned": 0.0}  # as is fitted to such short tasks, if they are your own
    own = {"min_steps": 300, "fill": True}
    for buffer in (50, 200, 500):
        assert values("s-cifar10", buffer) == usual
        assert values("s-cifar100", buffer) == usual | many
        assert values("gcil-uniform", buffer) == values("gcil-longtail", buffer) == usual | many | again
        assert values("s-digits", buffer) == usual | short | untouched
        assert values("default", buffer) == usual | short | own


@pytest.mark.parametrize("name", VARIANTS)
def test_the_defaults_are_the_published_settings(name):
    usual = getattr(SCoMMER() if hasattr(SCoMMER(), name) else Training(), name)
    published = VARIANTS[name][1]
    assert usual == (tuple(published) if name == "pi_h" else published)


def test_official_is_the_default_variant():
    made, training = presets.resolve("s-cifar10", "scommer", 200)
    assert as_dict(made, training) == settings("s-cifar10", variant="official")


def test_cifar_streams_are_augmented_as_published():
    expected = {
        "network": "resnet18", "epochs": 50, "pad": 4, "flip": True,
        "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2615],
    }  # fmt: skip
    streams = tables()["stream"]
    for name in CIFAR_STREAMS:
        found, like = {}, name
        while like:
            found, like = {**streams[like], **found}, streams[like].get("like")
        assert {k: v for k, v in found.items() if k != "like"} == expected


# --- looking up


def test_a_buffer_without_a_table_takes_the_nearest():
    by_buffer = {buffer: settings("s-cifar10", buffer=buffer)["r"] for buffer in (1, 100, 340, 360, 1000, 5120)}
    assert by_buffer == {1: 0.5, 100: 0.5, 340: 0.5, 360: 0.7, 1000: 0.7, 5120: 0.7}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("buffer", [200, 500])
@pytest.mark.parametrize("stream", ["s-cifar100-10", "s-cifar100-20"])
def test_a_stream_that_is_like_another_has_its_settings(stream, method, buffer):
    assert settings(stream, method, buffer) == settings("s-cifar100", method, buffer)


@pytest.mark.parametrize("stream", [*STREAMS, "my-own"])
def test_methods_without_gradients_see_every_row_once_on_every_stream(stream):
    for method in ("ncm", "slda"):
        wanted = {"network": "linear", "epochs": 1, "drop_last": False, "pad": 0, "flip": False}
        expect(settings(stream, method), wanted)
        expect(settings(stream, method, epochs=2), wanted | {"epochs": 2})


def test_a_cell_wins_over_the_presets_of_its_method(own_copy):
    presets.register({"method": {"ncm": {"batch": 7}}, "cell": {"s-cifar100": {"ncm": {"epochs": 3}}}})
    expect(settings("s-cifar100", "ncm"), {"batch": 7, "epochs": 3})
    expect(settings("s-cifar10", "ncm"), {"batch": 7, "epochs": 1})
    presets.register({"method": {"ncm": {"shrinkage": 0.5}}})
    with pytest.raises(UsageError, match="unknown setting of ncm 'shrinkage'"):
        settings("s-cifar10", "ncm")


def test_a_stream_without_a_preset_has_the_default():
    expect(settings("my-own", "er"), {"epochs": 20, "pad": 0, "flip": False})
    assert settings("my-own", "scommer") == settings("default", "scommer")


@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stream", [*STREAMS, "my-own"])
def test_every_cell_resolves_to_plain_values(stream, method, variant):
    found = settings(stream, method, 123, variant)
    assert json.loads(json.dumps(found)) == found
    assert list(found) == sorted(found)
    names = {f.name for kind in (METHODS[method], Training) for f in fields(kind)}
    assert set(found) == names


def test_overrides_win():
    given = {"r": 0.25, "lr": 0.7, "epochs": 3, "active": [0.5, 0.4], "pi_h": 2, "network": "small", "width": 8}
    found = settings("s-cifar10", **given)
    expect(found, given)
    others = {k: v for k, v in found.items() if k not in given}
    expect(settings("s-cifar10"), others)


def test_looking_up_settings_does_not_change_the_presets():
    before = settings("s-cifar10")
    presets.preset("s-cifar10", "scommer", 200)["lr"] = 99
    settings("s-cifar10", lr=5.0)
    assert settings("s-cifar10") == before


# --- names


@pytest.mark.parametrize(
    ("name", "method", "hint"),
    [
        ("gama", "scommer", "gamma"),
        ("epoch", "sgd", "epochs"),
        ("r_stabel", "cls-er", "r_stable"),
        ("bta", "der++", "beta"),
    ],
)
def test_an_unknown_setting_has_a_hint(name, method, hint):
    with pytest.raises(
        UsageError, match=rf"unknown setting of {method.replace('+', '.')} '{name}': did you mean '{hint}'\?"
    ):
        settings("s-cifar10", method, **{name: 1})


def test_a_preset_with_an_unknown_setting_is_refused(monkeypatch):
    tables = deepcopy(presets.presets())
    tables["cell"]["s-digits"]["er"] = {"epoch": 3}
    monkeypatch.setattr(presets, "presets", lambda: tables)
    with pytest.raises(UsageError, match="unknown setting of er 'epoch': did you mean 'epochs'"):
        presets.resolve("s-digits", "er", 50)


def test_a_setting_of_another_method_is_unknown():
    with pytest.raises(UsageError, match="unknown setting of er 'gamma'"):
        settings("s-cifar10", "er", gamma=0.1)


def test_unknown_methods_and_variants_have_a_hint():
    with pytest.raises(UsageError, match=r"unknown method 'scomer': did you mean 'scommer'\?"):
        settings("s-cifar10", "scomer")
    with pytest.raises(UsageError, match=r"unknown variant 'offical': did you mean 'official'\?"):
        settings("s-cifar10", variant="offical")
    with pytest.raises(UsageError, match="unknown variant 'x': known: official, paper"):
        settings("s-cifar10", variant="x")


def tables():
    return tomllib.loads((files("scommer.runs") / "presets.toml").read_text())


def settings_in_presets():
    """(where, methods that may have it, name) of each key in presets.toml."""
    for variant, methods in tables()["variant"].items():
        for method, found in methods.items():
            for name, value in found.items():
                inner = value if isinstance(value, dict) else {name: value}  # of a stream
                yield from ((f"variant.{variant}.{method}", [method], n) for n in inner)
    for stream, found in tables()["stream"].items():
        yield from ((f"stream.{stream}", METHODS, name) for name in found if name not in ("like", "variant"))
    for method, found in tables()["method"].items():
        yield from ((f"method.{method}", [method], name) for name in found)
    for stream, methods in tables()["cell"].items():
        for method, found in methods.items():
            for name, value in found.items():
                inner = value if isinstance(value, dict) else {name: value}
                yield from ((f"cell.{stream}.{method}", [method], n) for n in inner)


def test_every_key_of_the_presets_is_a_setting_of_its_method():
    for where, methods, name in settings_in_presets():
        known = {f.name for method in methods for kind in (METHODS[method], Training) for f in fields(kind)}
        assert name in known, f"[{where}] {name}"


def test_every_table_of_the_presets_names_a_known_variant_stream_method_and_buffer():
    found = tables()
    assert set(found) == {"variant", "stream", "method", "cell", "earlier"}
    assert set(found["earlier"]) <= set(METHODS)
    assert set(found["method"]) <= set(METHODS)
    assert set(found["variant"]) == {"official", "paper", "plus"}
    assert set(found["stream"]) <= {*STREAMS, "default"}  # a stream may have none
    assert set(found["cell"]) <= set(found["stream"])
    assert {table.get("like", "default") for table in found["stream"].values()} <= set(found["stream"])
    for methods in found["cell"].values():
        assert set(methods) <= set(METHODS)
        for cell in methods.values():
            assert all(name.isdigit() for name, value in cell.items() if isinstance(value, dict))


# --- presets of others


@pytest.fixture
def own_copy(monkeypatch):
    copy = deepcopy(presets.presets())
    monkeypatch.setattr(presets, "presets", lambda: copy)


@pytest.mark.usefixtures("own_copy")
@pytest.mark.parametrize("as_text", [True, False])
def test_registered_presets_are_looked_up_like_the_others(as_text):
    before = settings("s-cifar10", buffer=500)
    text = """
[stream.s-mine]
like = "s-cifar10"
epochs = 7
[cell.s-mine.er.200]
lr = 0.25
[cell.s-cifar10.scommer]
gamma = 0.3
[variant.official.er]
replay = 64
"""
    presets.register(text if as_text else tomllib.loads(text))
    expect(settings("s-mine", "er", 200), {"epochs": 7, "lr": 0.25, "replay": 64, "network": "resnet18", "pad": 4})
    assert settings("s-mine", "er", 200, variant="paper")["replay"] == 32
    assert presets.buffers("s-mine", "er") == [200]
    assert settings("s-cifar10", buffer=500) == before | {"gamma": 0.3}  # what was known stays


@pytest.mark.usefixtures("own_copy")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("lr = ", "not TOML"),
        ("[cells.s-digits.er]\nlr = 1", "unknown table of presets 'cells': did you mean 'cell'"),
        ("[variant.offical.er]\nlr = 1", "unknown variant 'offical': did you mean 'official'"),
        ("stream = 3", r"\[stream\] of these presets is 3: expected tables, such as \[stream\.NAME\]"),
        ({"cell": {"s-digits": 3}}, r"expected tables, such as \[cell\.NAME\]"),
        ("[cell.s-digits.er.many]\nlr = 1", r"\[cell\.s-digits\.er\.many\] is for no buffer"),
    ],
)
def test_invalid_presets_are_refused_and_change_nothing(wrong, message):
    before = deepcopy(presets.presets())
    with pytest.raises(UsageError, match=message):
        presets.register(wrong)
    assert presets.presets() == before


@pytest.mark.usefixtures("own_copy")
def test_a_registered_preset_with_a_wrong_setting_is_refused_when_it_is_used():
    presets.register({"cell": {"s-digits": {"er": {"epoch": 3}}}})
    with pytest.raises(UsageError, match="unknown setting of er 'epoch'"):
        settings("s-digits", "er")
