"""Grids from the command line and from files."""

from itertools import product
from pathlib import Path

import pytest

from scommer.errors import UsageError
from scommer.sweeps.grid import Grid, parse_setting, read_grid


def test_all_combinations_one_seed_after_the_other() -> None:
    grid = Grid(
        ("s-digits", "s-cifar10"), ("scommer", "er", "sgd"), (50, 100), (0, 1),
        settings=dict(map(parse_setting, ("lr=0.03,0.1", "r=0.1,0.5", "er.momentum=0.9"))),
    )  # fmt: skip
    found = [(e.seed, e.stream, e.method, e.buffer, tuple(e.settings.items())) for e in grid.experiments()]
    by_hand = []
    for seed, stream in product((0, 1), ("s-digits", "s-cifar10")):
        for buffer in (50, 100):
            for lr, r in product((0.03, 0.1), (0.1, 0.5)):
                by_hand.append((seed, stream, "scommer", buffer, (("lr", lr), ("r", r))))
        for buffer in (50, 100):
            for lr in (0.03, 0.1):  # ER has no r
                by_hand.append((seed, stream, "er", buffer, (("lr", lr), ("momentum", 0.9))))
        by_hand += [(seed, stream, "sgd", 50, (("lr", lr),)) for lr in (0.03, 0.1)]  # SGD has no buffer
    assert sorted(found) == sorted(by_hand)
    assert [f[0] for f in found] == sorted(f[0] for f in found)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1", (0.1,)),
        ("lr=.03, 0.1", (0.03, 0.1)),
        ("active=[0.9,0.8],[0.5, 0.4]", ([0.9, 0.8], [0.5, 0.4])),
        ("network=mlp,'a,b'", ("mlp", "a,b")),
        ("drop_last=true,False", (True, False)),
    ],
)
def test_values_of_a_setting(text: str, values: tuple[object, ...]) -> None:
    assert parse_setting(text) == (text.partition("=")[0], values)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        """
        stream = "s-digits"
        method = ["scommer", "er"]
        buffer = [50, 100]
        seeds = "0-2,7"
        validation = 0.1
        [set]
        lr = [0.03, 0.1]
        epochs = 2
        [set.scommer]
        lr = 0.5
        active = [[0.9, 0.8]]
        [search]
        momentum = {low = 0.0, high = 0.9}
        """
    )
    grid = Grid(**read_grid(path))
    assert (grid.streams, grid.seeds, grid.validation) == (("s-digits",), (0, 1, 2, 7), 0.1)
    assert grid.search == {"momentum": {"low": 0.0, "high": 0.9}}
    scommer = [e for e in grid.experiments() if e.method == "scommer"]
    assert len(scommer) == 4 * 2
    assert all(e.settings == {"lr": 0.5, "epochs": 2, "active": [0.9, 0.8]} for e in scommer)
    assert len(grid.experiments()) == 4 * 2 + 4 * 2 * 2


WRONG = {
    "not TOML": ("stream = [", "is not TOML"),
    "unknown key": ("streams = 's-digits'", "unknown key in .* 'streams': did you mean 'stream'"),
    "no list of seeds": ("seeds = 'a'", "'a' is not a list of whole numbers"),
    "seeds of words": ("seeds = ['a']", "seeds has 'a': expected whole numbers"),
    "a truth value": ("buffer = true", "buffer has True: expected whole numbers"),
    "no methods": ("method = []", r"method = \[\] has no values"),
    "no values": ("[set]\nlr = []", r"lr = \[\] has no values"),
    "a word for validation": ("validation = 'much'", "validation = 'much' is invalid"),
    "set is a number": ("set = 3", "set = 3 is invalid: expected a table"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case: str, tmp_path: Path) -> None:
    content, message = WRONG[case]
    (tmp_path / "sweep.toml").write_text(content)
    with pytest.raises(UsageError, match=message):
        read_grid(tmp_path / "sweep.toml")


def test_wrong_grids(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_grid(tmp_path / "missing.toml")
    with pytest.raises(UsageError, match="unknown stream 's-digit'"):
        Grid(("s-digit",))
    with pytest.raises(UsageError, match="unknown method 'era'"):
        Grid(("s-digits",), ("era",))
    with pytest.raises(UsageError, match="unknown setting of er and sgd 'r'"):
        Grid(("s-digits",), ("er", "sgd"), settings={"r": (0.1,)})
    with pytest.raises(UsageError, match="unknown method of this sweep 'scommer'"):
        Grid(("s-digits",), ("er", "sgd"), settings={"scommer.r": (0.1,)})
    with pytest.raises(UsageError, match="more than 100,000 runs"):
        Grid(("s-digits",), seeds=tuple(range(60_000)), settings={"lr": (0.1, 0.2)}).experiments()
    with pytest.raises(UsageError, match="no stream was given"):
        Grid().experiments()
