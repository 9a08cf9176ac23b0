"""What the reading says of GCIL and of its published streams is what records and draws hold."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scommer.analysis.selection import load_records as load
from scommer.data import load as datasets
from scommer.methods import METHODS
from scommer.paper.gcil_as_published import gcil_as_published
from scommer.paper.tables import paper_numbers
from scommer.runs.presets import preset

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results.md"


def test_what_the_reading_says_of_the_last_task_of_gcil_is_in_the_records() -> None:
    reading = (ROOT / "results" / "README.md").read_text()
    said = " ".join(reading.split())
    found: dict[tuple[str, str, int | None], list[tuple[float, float, float]]] = {}
    ends: dict[tuple[str, str, int | None], list[float]] = {}
    sizes = {}
    for r in load([Path(f"{ROOT}/results/gcil-*")]):
        accuracy = r.arrays[f"class_accuracy/{r.inference}"][-1]
        last = np.isin(np.arange(100), r.stream["tasks"][-1])
        key = (r.experiment["method"], r.experiment["stream"], r.experiment["buffer"])
        share = accuracy[last].sum() / accuracy.sum()
        found.setdefault(key, []).append((accuracy[last].mean(), accuracy[~last].mean(), share))
        if r.experiment["method"] != "joint":
            ends.setdefault(key, []).append(r.matrix(r.inference).diagonal().mean())
        sizes[r.experiment["stream"]] = last.sum()
    pair = r"([\d.]+, [\d.]+)"
    table = re.findall(rf"^\| (\S+) {rf'[|] {pair} ' * 4}\|$", reading, re.M)
    assert [row[0].lower() for row in table] == ["er", "der++", "cls-er", "scommer"]
    cells = [(f"gcil-{kind}", buffer) for kind in ("uniform", "longtail") for buffer in (200, 500)]
    for method, *told in table:
        for cell, values in zip(cells, told, strict=True):
            runs = found[method.lower(), *cell]
            assert len(runs) == (3 if method == "SCoMMER" else 1)
            assert values == f"{np.mean(runs, 0)[0]:.1f}, {np.mean(runs, 0)[1]:.1f}", (method, cell)
    shares = [100 * found["sgd", f"gcil-{kind}", None][0][2] for kind in ("uniform", "longtail")]
    assert f"({shares[0]:.0f} and {shares[1]:.0f} %) in classes of the last task" in said
    assert f"have {sizes['gcil-uniform']} (uniform) and {sizes['gcil-longtail']} (longtail)" in said
    ahead = {m: [np.mean(ends["scommer", *c]) - np.mean(ends[m, *c]) for c in cells] for m in ("der++", "cls-er")}
    assert "ahead of DER++ by {:.1f}, {:.1f}, {:.1f} and {:.1f} points".format(*ahead["der++"]) in said
    first, *rest = ahead["cls-er"]
    assert f"ahead of CLS-ER by {first:.1f} on uniform with 200" in said
    assert "behind it by {:.1f}, {:.1f} and {:.1f} in the other three".format(*(-d for d in rest)) in said
    paper = {(r["method"], r["buffer"]): r["values"][-2:] for r in paper_numbers()["main"]["rows"] if "buffer" in r}
    gaps = [
        ours[0] - theirs[0]
        for buffer in (200, 500)
        for ours, theirs in zip(paper["scommer", buffer], paper["der++", buffer], strict=True)
    ]
    assert f"ahead in all four cells, of DER++ by up to {max(gaps):.1f} points" in said


@pytest.mark.long
def test_what_the_reading_says_of_the_published_streams_follows_from_their_draws(
    cifar: Callable[[str], Path],
) -> None:
    reading = (ROOT / "results" / "README.md").read_text()
    data = datasets("cifar100", cifar("cifar100"))
    cells = [(kind, buffer) for kind in ("uniform", "longtail") for buffer in (200, 500)]
    sizes, last = {}, {}
    for method in ("sgd", "er", "der++", "cls-er"):
        for kind, buffer in cells:
            epochs = preset(f"gcil-{kind}", method, buffer)["epochs"]
            drawn = kind, METHODS[method].draws, buffer, epochs
            if drawn not in last:  # CLS-ER draws as ER does
                stream = gcil_as_published(data, kind, draws=METHODS[method].draws, buffer=buffer, epochs=epochs)
                last[drawn] = len(stream.tasks[-1].classes)
            sizes[method, f"gcil-{kind}", buffer] = last[drawn]
    table = re.findall(r"^\| (\S+) " + r"\| (\d+) " * 4 + r"\|$", reading, re.M)
    assert [row[0].lower() for row in table] == ["sgd", "er", "der++", "cls-er"]
    for method, *told in table:
        assert [int(n) for n in told] == [sizes[method.lower(), f"gcil-{kind}", buffer] for kind, buffer in cells]
    column = {"gcil-uniform": -2, "gcil-longtail": -1}
    paper = {(r["method"], r.get("buffer")): r["values"] for r in paper_numbers()["main"]["rows"]}
    agree, cells_run = [], 0
    for r in load([Path(f"{ROOT}/results/gcil-*@seed=0")]):
        method, stream_name, buffer = (r.experiment[k] for k in ("method", "stream", "buffer"))
        if method in ("sgd", "er", "der++", "cls-er"):
            theirs, deviation = paper[method, buffer][column[stream_name]]
            classes = len(r.stream["tasks"][-1]) - sizes[method, stream_name, buffer or 200]
            if abs(r.accuracy() - theirs) > 2 * deviation:
                agree.append((r.accuracy() - theirs) * classes > 0)
            cells_run += 1
    assert (len(agree), sum(agree), cells_run) == (10, 9, 14)
    assert "Ten of these 14 cells have a star in the main table, and nine of the ten" in " ".join(reading.split())


def test_what_the_reading_says_of_runs_on_published_streams_is_in_the_records(front: str) -> None:
    reading = (ROOT / "results" / "README.md").read_text()
    rows = re.findall(
        r"^\| (\S+) \| (uniform|longtail)(?:, (\d+))? \| ([\d.]+) ± [\d.]+ \| ([\d.]+) \| ([\d.]+) \|$", reading, re.M
    )
    runs = {
        (r.experiment["method"], r.experiment["stream"].split("-")[1], str(r.experiment["buffer"] or "")): r
        for r in load([ROOT / "docs" / "gcil"])
    }
    assert {(method.lower(), kind, buffer) for method, kind, buffer, *_ in rows} == runs.keys()
    assert len(rows) == 5
    off: list[list[float]] = []
    for method, kind, buffer, paper, here, there in rows:
        run = runs[method.lower(), kind, buffer]
        size = f"@buffer={buffer}" if buffer else ""
        (ours,) = load([Path(f"{ROOT}/results@stream=gcil-{kind}@method={method.lower()}{size}@preset")])
        assert run.settings == ours.settings
        assert run.stream["fingerprint"] != ours.stream["fingerprint"]
        assert (here, there) == (f"{ours.accuracy():.2f}", f"{run.accuracy():.2f}")
        assert f"| gcil-{kind} | Class-IL | {here} | 1 | {paper} ±" in RESULTS.read_text()
        off.append([abs(float(value) - float(paper)) for value in (here, there)])
    far, near = zip(*off, strict=True)
    assert (
        f"was {min(far):.1f} to {max(far):.1f} points away is now {min(near):.1f} to {max(near):.1f} away"
        in " ".join(reading.split())
    )
    assert max(near) < 1.6
    assert "SGD, ER and DER++ come within 1.6 points of its numbers" in front
