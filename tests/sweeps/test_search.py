"""Searches with Optuna: they propose, stop poor trials, continue, and choose the best."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from calling import call
from test_sweep import Here

from scommer import load_records, streams
from scommer.errors import UsageError
from scommer.runs.runner import TimeUp
from scommer.sweeps.grid import Grid
from scommer.sweeps.status import SweepWatch

optuna: Any = pytest.importorskip("optuna", reason="Optuna is not installed")
from scommer.sweeps.search import Search  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Optuna's own

FILE = """
stream = "s-digits"
method = "sgd"
seeds = "0-1"
validation = 0.2
[set]
network = "mlp"
width = 8
epochs = 2
[search]
lr = {low = 1e-6, high = 0.3, log = true}
batch = [16, 32]
"""


def grid(tmp_path: Path, text: str = FILE) -> Grid:
    from scommer.sweeps.grid import read_grid

    (tmp_path / "sweep.toml").write_text(text)
    return Grid(**read_grid(tmp_path / "sweep.toml"))


def trials_of(search: Search) -> list[Any]:
    (study,) = search.studies.values()
    return list(study.trials)


def test_a_search_stops_poor_trials_continues_and_finds_the_best(tmp_path: Path) -> None:
    options = {"out": tmp_path, "data": None, "device": "cpu"}
    search = Search(grid(tmp_path), 4, tmp_path, options)
    search.run(Here(), SweepWatch())
    first = trials_of(search)
    assert [t.state.name for t in first] == ["COMPLETE"] * 4
    for t in first:  # the value is the mean validation accuracy over seeds
        ours = [r.accuracy() for r in search.records.values() if r.settings["lr"] == t.params["lr"]]
        assert t.value == pytest.approx(sum(ours) / 2)
        assert len(t.intermediate_values) == 4  # after each task but the last
    again = Search(grid(tmp_path), 14, tmp_path, options)
    place = Here()
    again.run(place, SweepWatch())
    trials = trials_of(again)
    assert [t.params for t in trials[:4]] == [t.params for t in first]
    assert len(trials) == 14
    assert len(place.ran) == 2 * 10
    pruned = [t for t in trials if t.state.name == "PRUNED"]
    assert pruned
    assert all(len(t.intermediate_values) < 5 for t in pruned)
    done = [t for t in trials if t.state.name == "COMPLETE"]
    assert len(again.records) == 2 * len(done)
    assert max(done, key=lambda t: t.value).params["lr"] > 1e-3  # smaller ones learn nothing


def test_an_unfinished_trial_is_continued(tmp_path: Path) -> None:
    options = {"out": tmp_path, "data": None, "device": "cpu"}
    (study,) = Search(grid(tmp_path), 1, tmp_path, options).studies.values()
    trial = study.ask()
    trial.suggest_float("lr", 1e-6, 0.3, log=True)
    trial.suggest_categorical("batch", [16, 32])
    with pytest.raises(TimeUp, match="run the same command to resume"):
        Search(grid(tmp_path), 1, tmp_path, options).run(Here(), SweepWatch(), minutes=1e-9)
    search = Search(grid(tmp_path), 1, tmp_path, options)
    search.run(Here(), SweepWatch())
    (only,) = trials_of(search)
    assert only.state.name == "COMPLETE"
    assert {r.settings["lr"] for r in search.records.values()} == {trial.params["lr"]}


def test_another_search_in_the_same_folder_has_trials_of_its_own(tmp_path: Path) -> None:
    options = {"out": tmp_path, "data": None, "device": "cpu"}
    for text in (FILE, FILE.replace("epochs = 2", "epochs = 1"), FILE.replace("[16, 32]", "[8]")):
        search = Search(grid(tmp_path, text), 1, tmp_path, options)
        search.run(Here(), SweepWatch())
        (trial,) = trials_of(search)
        assert trial.state.name == "COMPLETE"
        assert len(search.records) == 2
    assert len({r.name for r in load_records(tmp_path)}) == 6


def test_failed_trials_are_tried_again(tmp_path: Path) -> None:
    options = {"out": tmp_path, "data": None, "device": "cpu"}
    failing = {**options, "precision": "fp99"}
    search = Search(grid(tmp_path), 2, tmp_path, failing)
    place = Here()
    search.run(place, SweepWatch())
    assert len(search.failures) == 4
    again = Search(grid(tmp_path), 2, tmp_path, options)
    again.run(place, SweepWatch())
    assert [t.state.name for t in trials_of(again)] == ["FAIL", "FAIL", "COMPLETE", "COMPLETE"]


def test_invalid_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid(tmp_path)
    words = ["sweep", str(tmp_path / "sweep.toml"), "--search", "optuna", "--trials", "1", "--out", str(tmp_path / "r")]
    for wrong in (["--minutes", "-1"], ["--precision", "fp99"]):
        code, _, err = call(capsys, *words, "--device", "cpu", "--processes", "1", *wrong)
        assert (code, len(err.splitlines())) == (2, 1)


def test_ranges_need_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid(tmp_path)
    code, _, err = call(capsys, "sweep", str(tmp_path / "sweep.toml"), "--dry-run", "--out", str(tmp_path / "runs"))
    assert (code, err.count("\n")) == (2, 1)
    assert "[search] needs --search optuna and --trials" in err


def test_the_data_are_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = streams.load
    monkeypatch.setattr(streams, "load", lambda *given: loaded.append(given) or load(*given))
    search = Search(grid(tmp_path), 3, tmp_path, {"out": tmp_path, "data": None, "device": "cpu"})
    assert len(list(search._proposals())) == 3
    assert len(loaded) == 1


def test_without_optuna_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="Optuna is not installed"):
        Search(grid(tmp_path), 1, tmp_path, {"data": None})


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    grid(tmp_path)
    words = [
        "sweep",
        str(tmp_path / "sweep.toml"),
        "--search",
        "optuna",
        "--trials",
        "2",
        "--final",
        "--processes",
        "1",
    ]
    code, out, err = call(capsys, *words, "--device", "cpu", "--out", str(tmp_path / "runs"))
    assert code == 0, err
    final = [json.loads(path.read_text()) for path in tmp_path.glob("runs/final/*/record.json")]
    assert sorted(r["experiment"]["seed"] for r in final) == [0, 1]
    assert "Test" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("validation = 0.2", ""), "needs validation images"),
        (FILE.partition("[search]")[0], "needs ranges"),
        (FILE.replace("epochs = 2", "epochs = [1, 2]"), "epochs has several values"),
        (FILE.replace("high = 0.3", "high = 1e-9"), "the range of lr is"),
        (FILE.replace("low = 1e-6", "low = 0.0"), "give a low above 0"),
        (FILE.replace("[16, 32]", "16"), "the range of batch is 16"),
        (FILE.replace("low = 1e-6", "least = 1e-6"), "the range of lr is"),
    ],
)
def test_wrong_searches(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Search(grid(tmp_path, text), 3, tmp_path / "out", {"data": None})
    assert not (tmp_path / "out").exists()
