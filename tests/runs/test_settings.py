"""Settings: assignments are parsed, values are converted to the type of a setting or refused."""

import pytest

from scommer.errors import UsageError
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.runs.settings import as_dict, parse


def settings(stream, method="scommer", buffer=200, variant="official", **overrides):
    made, training = presets.resolve(stream, method, buffer, variant=variant, overrides=overrides)
    return as_dict(made, training)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("r=0.1", "r", 0.1),
        ("lr = 1e-3", "lr", 0.001),
        ("epochs=5", "epochs", 5),
        ("active=[0.9,0.8]", "active", [0.9, 0.8]),
        ("sparse=false", "sparse", False),
        ("network=mlp", "network", "mlp"),
        ('network="mlp"', "network", "mlp"),
        ("threshold=k-1", "threshold", "k-1"),
        ("width=none", "width", "none"),
        ("name=a=b", "name", "a=b"),
    ],
)
def test_assignments_are_parsed_as_in_toml(text, name, value):
    assert parse(text) == (name, value)
    assert type(parse(text)[1]) is type(value)


@pytest.mark.parametrize("text", ["r", "", "=0.1", " = 0.1", "r 0.1"])
def test_invalid_assignments_are_refused(text):
    with pytest.raises(UsageError, match=rf"'{text}' is not a setting: write name=value, for example r=0\.1"):
        parse(text)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("lr", 1, 1.0),
        ("epochs", 10.0, 10),
        ("width", None, None),
        ("width", "none", None),
        ("width", 12, 12),
        ("pi_h", 1, 1.0),
        ("pi_h", [1, 2.5, 3, 4], [1.0, 2.5, 3.0, 4.0]),
        ("active", (1, 0.5), [1.0, 0.5]),
        ("sparse", False, False),
        ("dropout", "all", "all"),
    ],
)
def test_values_are_converted_to_the_settings_type(name, given, value):
    found = settings("s-cifar10", **{name: given})[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("lr", "fast", "a number"),
        ("lr", True, "a number"),
        ("lr", [0.1], "a number"),
        ("lr", "", "a number"),
        ("lr", None, "a number"),
        ("epochs", 2.5, "a whole number"),
        ("epochs", "ten", "a whole number"),
        ("epochs", True, "a whole number"),
        ("width", "wide", "a whole number or none"),
        ("sparse", 1, "true or false"),
        ("sparse", "False", "true or false"),
        ("network", 18, "a word"),
        ("dropout", "first", "one of last, all, none"),
        ("dropout", True, "one of last, all, none"),
        ("threshold", ["k"], "one of k, k-1"),
        ("offer", None, "one of every_epoch, first_epoch, last_epoch"),
        ("active", [], r"a number or a list such as \[0\.9, 0\.8\]"),
        ("active", [0.9, "x"], r"a number or a list such as \[0\.9, 0\.8\]"),
        ("active", [0.9, True], r"a number or a list such as \[0\.9, 0\.8\]"),
        ("active", "0.9", r"a number or a list such as \[0\.9, 0\.8\]"),
        ("pi_h", "strong", r"a number or a list such as \[0\.9, 0\.8\]"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_expected_type(name, given, expected):
    with pytest.raises(UsageError, match=rf"^{name} = .* is invalid: expected {expected}$"):
        settings("s-cifar10", **{name: given})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("epochs", 0), ("batch", 0), ("replay", -1), ("width", 0), ("depth", 0), ("stages", 0), ("pad", -1),
        ("lr", -0.1), ("momentum", 1.1), ("momentum", -0.1), ("weight_decay", -1e-4), ("std", [0.2, 0.0]),
        ("lr", 0.0),
        ("momentum", 1.0),
    ],
)  # fmt: skip
def test_invalid_training_settings_are_refused(name, given):
    with pytest.raises(UsageError, match=name):
        settings("s-cifar10", **{name: given})
    with pytest.raises(UsageError, match=name):
        Training(**{name: given})


@pytest.mark.parametrize("text", ["epochs=inf", "batch=nan", "width=-inf"])
def test_infinite_whole_numbers_are_refused(text):
    name, value = parse(text)
    with pytest.raises(UsageError, match="is invalid: expected a whole number"):
        settings("s-cifar10", **{name: value})


@pytest.mark.parametrize(
    "text",
    [
        "lr=nan", "weight_decay=nan", "std=[nan]", "gamma=nan", "r=nan", "pi_s=[0.5, nan, 1, 1]",
        *(text
          for text in ("lr=inf", "gamma=inf", "std=[inf]", "mean=[nan]", "mean=[inf]")),
    ],
)  # fmt: skip
def test_numbers_that_are_not_finite_are_refused(text):
    name, value = parse(text)
    with pytest.raises(UsageError, match=name):
        settings("s-cifar10", **{name: value})


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("scommer", "r", 2.0), ("scommer", "r", -0.1), ("scommer", "alpha", 1.5), ("scommer", "gamma", -1),
        ("scommer", "pi_s", -1), ("scommer", "pi_h", [1, 1, 1, -1]), ("scommer", "active", [0.9, 1.1]),
        ("cls-er", "r_stable", 1.1), ("cls-er", "r_plastic", -1), ("cls-er", "reg", -1), ("der++", "beta", -0.5),
    ],
)  # fmt: skip
def test_method_settings_out_of_range_are_refused(method, name, value):
    with pytest.raises(UsageError, match=name):
        settings("s-cifar10", method, **{name: value})
