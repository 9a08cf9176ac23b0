"""What the code and the documents assume about the records in this repository."""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from scommer.analysis.selection import load_records
from scommer.data import load
from scommer.engine.learner import DIVERGED
from scommer.methods import METHODS
from scommer.paper.documents.runs import paired
from scommer.paper.documents.vocabulary import Vocabulary
from scommer.paper.gcil_as_published import gcil_as_published
from scommer.runs.presets import earlier, settings

ROOT = Path(__file__).parents[2]
OF_THE_PAPER = ("sgd", "joint", "er", "der++", "cls-er", "scommer")


def by_seed(method: str, memory: str) -> dict[int, float]:
    """Class-IL accuracy on S-CIFAR10-200 from the files alone: with the preset, or the earlier one with more runs."""
    found: list[dict[int, float]] = []
    today = settings("s-cifar10", method, 200)
    for held in (today, today | earlier(method)):
        found.append({})
        for path in (ROOT / "results").glob(f"s-cifar10-{method}-200-seed*/record.json"):
            r = json.loads(path.read_text())
            if r["experiment"]["variant"] == "official" and r["settings"] == r["settings"] | {
                name: value for name, value in held.items() if name in r["settings"]
            }:
                found[-1][r["experiment"]["seed"]] = statistics.fmean(r["matrices"][memory]["class_il"][-1])
    return dict(sorted(max(found, key=len).items()))


@pytest.mark.parametrize(("method", "memory"), [("er", "working"), ("der++", "working"), ("cls-er", "stable")])
def test_differences_are_those_of_the_files(method: str, memory: str) -> None:
    ours, theirs = by_seed("scommer", "long_term"), by_seed(method, memory)
    assert list(ours) == list(theirs) == [0, 1, 2]
    vocabulary = Vocabulary(ROOT)
    found = paired(vocabulary.runs("s-cifar10", "scommer", 200), vocabulary.runs("s-cifar10", method, 200))
    assert found.mean == pytest.approx(statistics.fmean(ours.values()) - statistics.fmean(theirs.values()))
    low, high = ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval()
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_a_loss_is_well_below_or_above_where_a_run_is_reported_as_diverging() -> None:
    """In units of the loss of guessing, no run is between half of DIVERGED and DIVERGED."""
    for r in load_records([ROOT / "results", ROOT / "docs"]):
        turned = r.settings.get("turned") or r.settings.get("rotate")  # as the setting was called in a plugin
        times = r.arrays["loss"].max() / math.log(len(r.stream.classes) * (4 if turned else 1))
        assert times < DIVERGED / 2 or times > DIVERGED, r.name


def test_of_the_papers_methods_only_three_runs_diverge() -> None:
    wild = {
        r.name
        for r in load_records([f"{ROOT}/results@method={method}" for method in OF_THE_PAPER])
        if r.arrays["loss"].max() > 1.5 * math.log(len(r.stream.classes))
    }
    known = load_records([f"{ROOT}/results@stream=s-cifar10@{s}=true" for s in ("joint_batch", "replay_dropout")])
    assert wild == {r.name for r in known}
    assert len(wild) == 3


@pytest.mark.long
def test_the_last_tasks_of_the_published_streams_follow_from_their_draws(cifar: Callable[[str], Path]) -> None:
    data, kept = load("cifar100", cifar("cifar100")), Vocabulary(ROOT).data("docs/gcil/last_tasks.toml")
    assert {(kind, *methods) for kind, methods in kept.items()} == {
        ("uniform", "sgd", "er", "der++", "cls-er"),
        ("longtail", "sgd", "er", "der++", "cls-er"),
    }
    drawn: dict[tuple[object, ...], int] = {}
    for kind, methods in kept.items():
        for method, sizes in methods.items():
            for buffer, size in zip((200, 500), sizes, strict=True):
                epochs = settings(f"gcil-{kind}", method, buffer)["epochs"]
                key = kind, METHODS[method].draws, buffer, epochs
                if key not in drawn:  # CLS-ER draws as ER does
                    stream = gcil_as_published(data, kind, draws=METHODS[method].draws, buffer=buffer, epochs=epochs)
                    drawn[key] = len(stream.tasks[-1].classes)
                assert size == drawn[key], (kind, method, buffer)
