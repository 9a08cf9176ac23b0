"""The scripts in examples run, and what they show holds."""

import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.mark.long
def test_the_life_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from life_of_a_model import MONTHS, live

    model = live(tmp_path)
    *months, forgotten, exported = capsys.readouterr().out.splitlines()
    shares = [float(line.split(",")[-1].split("%")[0]) for line in months]
    assert len(shares) == len(MONTHS)
    assert min(shares) > 75
    assert forgotten == "forgotten: 0 fives are remembered, 0 are predicted"
    assert exported.startswith("a scan of a seven: seven")
    assert set(model.classes_) == {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight"}
    assert len(model.history_) == len(MONTHS)


def test_the_comparison_draws_what_was_measured() -> None:
    import json

    import which_method

    found = json.loads((EXAMPLES.parent / "docs/own-data/comparison.json").read_text())["results"]
    sizes = {m: [0] if m in which_method.WITHOUT_MEMORY else list(which_method.ROWS) for m in which_method.METHODS}
    wanted = {(d, m, n, s) for d in ("digits", "features") for m in sizes for n in sizes[m] for s in which_method.SEEDS}
    assert {(r["data"], r["method"], r["rows"], r["seed"]) for r in found} == wanted
    figure = which_method.draw(found, {"digits": "Digits", "features": "Features"})
    for row, data in zip(np.reshape(figure.axes, (2, 2)), ("digits", "features"), strict=True):
        (line,) = [c for c in row[0].containers if c.get_label() == "ER"]
        means = [
            np.mean([r["accuracy"] for r in found if (r["data"], r["method"], r["rows"]) == (data, "ER", n)])
            for n in which_method.ROWS
        ]
        np.testing.assert_allclose(line.lines[0].get_ydata(), means)
    sys.modules.pop("which_method")
