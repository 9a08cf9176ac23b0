"""The document of results and the README's table are what the records make."""

import json
import re
import statistics
from pathlib import Path

import pytest

from scommer.analysis.selection import load_records as load
from scommer.cli.inspect import results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results.md"


def test_the_document_of_results_is_what_the_records_make(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    results()
    assert capsys.readouterr().out == RESULTS.read_text(), "make results writes docs/results.md anew"


def test_every_run_is_in_the_document_of_results() -> None:
    """Its scores from the matrices of the records, without our own reading of them."""
    listed = RESULTS.read_text().split("## Every run")[1]
    paths = sorted((ROOT / "results").glob("*/record.json"))
    assert listed.count("\n| ") == 2 + len(paths) > 2  # the head and its line
    for path in paths:
        r = json.loads(path.read_text())
        e, rows = r["experiment"], r["matrices"][r["inference"]]
        scores = [f"{statistics.fmean(rows[s][-1]):.2f}" if s in rows else "–" for s in ("class_il", "task_il")]
        cell = rf"\| {e['stream']} \| {re.escape(e['method'])} \| {e['buffer'] or '–'} \| [^|]* \| {e['seed']} "
        found = re.findall(cell + rf"\| {' [|] '.join(scores)} \| {r['code']['commit'][:7]}\b", listed)
        assert found, path


def test_the_results_in_the_readme_are_those_of_the_document() -> None:
    section = (ROOT / "README.md").read_text().split("## What is known to reproduce")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 2
    assert set(rows) <= set(RESULTS.read_text().splitlines())
    said = re.findall(r"\d+\.\d\d", section.split(rows[-1])[1])
    assert said
    assert set(said) <= set(re.findall(r"\d+\.\d\d", RESULTS.read_text()))


def test_the_numbers_that_the_reading_names_are_those_of_the_tables() -> None:
    reading = (ROOT / "results" / "README.md").read_text()
    assert reading in RESULTS.read_text()
    apart = {f"{r.accuracy():.2f}" for r in load([ROOT / "docs" / "gcil"])}  # runs that no table has
    settings = {"0.08", "0.04"}  # of CLS-ER, tested below
    numbers = set(re.findall(r"\d+\.\d\d(?!\d)", reading))
    assert numbers
    assert numbers - apart - settings <= set(re.findall(r"\d+\.\d\d", RESULTS.read_text().replace(reading, "")))
