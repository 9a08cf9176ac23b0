"""Small experiments on the digits, and what makes two folders of runs the same."""

from pathlib import Path
from typing import Any

from scommer import Experiment
from scommer.runs.facts import to_json
from scommer.runs.record import Record

QUICK: dict[str, Any] = {"network": "mlp", "width": 8, "epochs": 1}


def experiments(methods: tuple[str, ...] = ("er", "sgd"), seeds: int = 2, **settings: Any) -> list[Experiment]:
    """Return runs of methods and seeds that take a fraction of a second."""
    return [Experiment("s-digits", m, 20, seed, settings=QUICK | settings) for m in methods for seed in range(seeds)]


def assert_same_records(a: Path, b: Path) -> None:
    """Check that two folders hold the same runs, bit for bit: records, arrays and weights, all but times."""
    names = {path.parent.name for path in a.glob("*/record.json")}
    assert names
    assert names == {path.parent.name for path in b.glob("*/record.json")}
    for name in names:
        one, other = (to_json(Record.load(folder / name), skip="arrays") for folder in (a, b))
        times = [facts.pop("times") for facts in (one, other)]
        assert times[0]["steps"] == times[1]["steps"]
        assert one == other
        arrays = [Record.load(folder / name).arrays for folder in (a, b)]
        assert arrays[0].keys() == arrays[1].keys()
        assert all((arrays[0][key] == arrays[1][key]).all() or key.startswith("class_acc") for key in arrays[0])
        for file in ("weights.safetensors",):
            assert (a / name / file).exists() == (b / name / file).exists()
            if (a / name / file).exists():
                assert (a / name / file).read_bytes() == (b / name / file).read_bytes()
