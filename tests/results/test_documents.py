"""The committed documents are what their templates and the records make, and every claim in them holds."""

import json
import re
import statistics
from pathlib import Path

import pytest

from scommer.cli.paper import results
from scommer.paper.documents import rendering

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / rendering.TEMPLATES).rglob("*.jinja"))
DOCUMENTS = [path.relative_to(ROOT / rendering.TEMPLATES).with_suffix("") for path in TEMPLATES]

# Numbers with decimals that no record and no table of the paper holds: settings, targets, versions, and what was
# measured without a record and says so.
TYPED = {
    "README.md": "1.5 2.5 3.11 3.13 39.5",
    "docs/figures.md": "",
    "docs/performance.md": "0.7 1.15 1.2 1.5 1.8 2.13 39.5 62.7",
    "docs/plus.md": "0.15 0.3 0.5 0.6",
    "docs/tutorial.md": "",
    "docs/variants.md": "1.1",
    "docs/cluster.md": "",
    "docs/which-method.md": "",
    "results/README.md": "0.02 0.4 0.5 0.6 0.7 0.8 0.9 0.99",
}


@pytest.fixture(scope="module")
def rendered() -> dict[Path, str]:
    return rendering.documents(ROOT)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_a_document_is_what_its_template_makes(document: Path, rendered: dict[Path, str]) -> None:
    assert rendered[document] == (ROOT / document).read_text(), f"run `make results` to write {document}"


def test_the_results_document_is_what_scommer_results_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    results()
    assert capsys.readouterr().out == (ROOT / "docs/results.md").read_text(), "run `make results`"


@pytest.mark.parametrize("template", TEMPLATES, ids=[str(d) for d in DOCUMENTS])
def test_numbers_are_not_typed(template: Path) -> None:
    """What is outside of expressions, code and links has no decimals but those of TYPED."""
    text = re.sub(r"\{[{%#].*?[}%#]\}|```.*?```|`[^`]*`|\]\([^)]*\)", "", template.read_text(), flags=re.DOTALL)
    document = template.relative_to(ROOT / rendering.TEMPLATES).with_suffix("").as_posix()
    assert set(re.findall(r"\d+\.\d+", text)) == set(TYPED[document].split())


def test_every_run_is_in_the_results_document() -> None:
    """Scores from the matrices of the records, without our code that reads them."""
    listed = (ROOT / "docs/results.md").read_text().split("## Every run")[1]
    paths = sorted((ROOT / "results").glob("*/record.json"))
    assert listed.count("\n| ") == 2 + len(paths) > 2  # the head and the line below it
    for path in paths:
        r = json.loads(path.read_text())
        e, rows = r["experiment"], r["matrices"][r["inference"]]
        scores = [f"{statistics.fmean(rows[s][-1]):.2f}" if s in rows else "–" for s in ("class_il", "task_il")]
        cell = rf"\| {e['stream']} \| {re.escape(e['method'])} \| {e['buffer'] or '–'} \| [^|]* \| {e['seed']} "
        found = re.findall(cell + rf"\| {' [|] '.join(scores)} \| {r['code']['commit'][:7]}\b", listed)
        assert found, path
