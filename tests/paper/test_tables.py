"""The paper's tables: its numbers against its source, ours against numbers worked out by hand."""

import csv
import io
import math
import re
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES
from rich.console import Console

from scommer.analysis.table import as_csv, as_latex, as_markdown, as_rich
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.paper import tables
from scommer.runs import presets
from scommer.runs.experiment import Experiment
from scommer.runs.record import Record
from scommer.runs.settings import as_dict

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "scommer.tex"  # the paper, next to the repository


def record(stream: str, method: str, buffer: int | None, seed: int, accuracy: float, **settings: Any) -> Record:
    resolved = as_dict(*presets.resolve(stream, method, buffer or 0, "official", settings))
    experiment = replace(EXPERIMENT, stream=stream, method=method, buffer=buffer, seed=seed)
    memories = ("working", "long_term") if method == "scommer" else ("working",)
    scores = {
        m: {s: {"accuracy": accuracy - 10 * (m == "working" and len(memories) > 1)} for s in ("class_il", "task_il")}
        for m in memories
    }
    return Record("r", experiment, resolved, STREAM, memories[-1], {}, {}, scores, CODE, {}, DEVICE, TIMES)


def forms(rows: list[tables.Entry]) -> tuple[str, str, str, str]:
    """Terminal, Markdown, LaTeX and CSV."""
    table = tables.paper_table("main", rows)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(as_rich(table))
    return console.export_text(), as_markdown(table), as_latex(table), as_csv(tables.number_table("main", rows))


@pytest.mark.parametrize("label", ["tab:all-datasets", "tab:wm", "tab:abl", "tab:hyperparam"])
def test_the_numbers_equal_the_papers(label: str) -> None:
    """Every number of the table's source, in order."""
    if not SOURCE.exists():
        pytest.skip("the paper's source is not next to the repository")
    text = SOURCE.read_text()
    start = text.index(f"\\label{{{label}}}")
    body = text[start : text.index(r"\end{tabular}", start)]
    (table,) = (t for t in tables.paper_numbers().values() if label in t["source"])
    rows = [row for row in table["rows"] if "not in the paper" not in row.get("label", "")]
    ours = [number for row in rows for value in row["values"] for number in value]
    if label == "tab:hyperparam":
        found = [float(n) for pair in re.findall(r"& \d\.0 & ([\d.]+) & ([\d.]+)", body) for n in pair]
    else:
        found = [float(n) for pair in re.findall(r"([\d.]+)\}?\\tiny±([\d.]+)", body) for n in pair]
    assert len(found) > 4
    assert ours == found


def test_a_note_names_means_over_several_precisions() -> None:
    runs = [record("s-cifar10", "scommer", 200, seed, 67.0) for seed in range(3)]
    for run, precision in zip(runs, ("bf16", "tf32", "bf16"), strict=True):
        run.device = replace(run.device, precision=precision)
    note = "runs of several precisions: scommer, 200 on s-cifar10 (bf16, tf32)"
    assert tables.paper_table("main", tables.entries("main", runs)).notes[-1] == note
    assert note not in tables.paper_table("main", tables.entries("main", runs[::2])).notes


def test_ours_is_the_mean_and_deviation_over_seeds() -> None:
    runs = [record("s-cifar10", "scommer", 200, seed, a) for seed, a in ((2, 70.0), (0, 67.0), (1, 68.0))]
    for r in runs:
        r.scores["long_term"]["task_il"]["accuracy"] += 20
    entries = [e for e in tables.entries("main", runs) if e.ours]
    assert [(e.row, e.stream, e.setting) for e in entries] == [
        ("scommer, 200", "s-cifar10", "class_il"), ("scommer, 200", "s-cifar10", "task_il"),
    ]  # fmt: skip
    first = entries[0]
    assert first.ours == (67.0, 68.0, 70.0)  # by seed
    assert entries[1].ours == (87.0, 88.0, 90.0)
    assert (first.paper, first.paper_std) == (69.19, 0.61)
    assert first.mean == pytest.approx(205 / 3)
    assert first.std == pytest.approx(math.sqrt(((67 - 205 / 3) ** 2 + (68 - 205 / 3) ** 2 + (70 - 205 / 3) ** 2) / 2))
    assert first.difference == pytest.approx(205 / 3 - 69.19)
    assert not first.misses
    memories = {e.row: e.mean for e in tables.entries("memories", runs) if e.ours and e.setting == "class_il"}
    assert memories == {"working, 200": pytest.approx(205 / 3 - 10), "long_term, 200": pytest.approx(205 / 3)}


@pytest.mark.parametrize(
    ("ours", "misses"),
    [
        ((69.19,), False), ((67.98,), False), ((67.96,), True),  # two of the paper's deviations: 1.22
        ((67.9, 67.8), True),  # both seeds agree, and are off
        ((60.0, 75.0), False),  # off, but our own seeds spread further
        ((), False),
    ],
)  # fmt: skip
def test_a_miss_is_outside_two_deviations_of_both(ours: tuple[float, ...], misses: bool) -> None:
    assert tables.Entry("scommer, 200", "s-cifar10", "class_il", 69.19, 0.61, ours).misses is misses
    if len(ours) > 1:
        assert tables.Entry("x", "s", "class_il", 69.19, 0.61, ours).std == pytest.approx(statistics.stdev(ours))


def test_only_runs_of_exactly_the_cell_belong() -> None:
    others = [
        record("s-cifar10", "scommer", 500, 0, 1.0),
        record("s-cifar10", "scommer", 200, 0, 1.0, r=0.4),
        record("s-cifar10", "scommer", 200, 0, 1.0, epochs=1),
        record("s-cifar10", "er", 200, 0, 1.0),
    ]
    paper, held_out = (record("s-cifar10", "scommer", 200, 0, 1.0) for _ in range(2))
    paper.experiment = replace(paper.experiment, variant="paper")
    held_out.experiment = replace(held_out.experiment, validation=0.1)
    for table in ("main", "memories"):
        rows = tables.entries(table, [*others, paper, held_out])
        assert not any(e.ours for e in rows if e.row == "scommer, 200" or e.row.endswith("long_term, 200"))
    ablation = {e.row: e.ours for e in tables.entries("ablation", [record("s-cifar10", "er", 200, 0, 45.0)])}
    assert ablation.pop("none (ER)") == (45.0,)
    assert not any(ablation.values())
    sparse = record("s-cifar10", "scommer", 200, 0, 60.0, dropout="none")
    assert {e.row: e.ours for e in tables.entries("ablation", [sparse])}["no semantic dropout"] == (60.0,)
    varied = record("s-cifar10", "scommer", 200, 0, 66.0, r=0.4, active=[0.9, 0.9, 0.9, 0.7], pi_s=3.0)
    found = {e.row: e.ours for e in tables.entries("sensitivity", [varied]) if e.ours}
    assert found == {"r 0.4, %k 0.7, π_s 3.0, working": (56.0,), "r 0.4, %k 0.7, π_s 3.0, long_term": (66.0,)}


def test_runs_of_the_earlier_preset_stand_in_marked_while_there_are_more_of_them() -> None:
    before = [record("s-cifar10", "scommer", 200, seed, 60.0 + seed, warmup=30) for seed in (0, 1)]
    today = [record("s-cifar10", "scommer", 200, seed, 70.0 + seed) for seed in (0, 1)]

    def cell(records: list[Record], table: str = "main", row: str = "scommer, 200") -> tuple[tuple[float, ...], str]:
        return next((e.ours, e.earlier) for e in tables.entries(table, records) if e.row == row)

    assert cell(before) == ((60.0, 61.0), "warmup=30")
    assert cell([*before, today[0]]) == ((60.0, 61.0), "warmup=30")  # never mixed
    assert cell([*before, *today]) == cell(today) == ((70.0, 71.0), "")
    assert cell(before, "variants", "warmup=30") == ((60.0, 61.0), "")  # a row that asks for it
    changed = record("s-cifar10", "scommer", 200, 0, 50.0, warmup=30, dropout="none")
    assert cell([changed], "ablation", "no semantic dropout") == ((50.0,), "warmup=30")
    *_, note = tables.paper_table("main", tables.entries("main", before)).notes  # after the sources
    assert note == "runs of an earlier preset, with warmup=30: all"
    notes = tables.paper_table("variants", tables.entries("variants", [*before, changed])).notes
    assert notes == ("runs of an earlier preset, with warmup=30: official",)
    wanted = Experiment("s-cifar10", "scommer", 200, 0)
    assert tables.is_done(wanted, today)
    assert not tables.is_done(wanted, before)  # so it will be run


def test_settings_that_an_older_run_lacks_count_with_their_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that gains a setting keeps its runs, as long as the cell uses the setting's default."""
    older = record("s-cifar10", "er", 200, 0, 45.0)

    @dataclass(frozen=True)
    class WithMore(METHODS["er"]):  # type: ignore[misc]
        margin: float = 0.25

    monkeypatch.setitem(METHODS, "er", WithMore)
    assert [e.ours for e in tables.entries("main", [older]) if e.ours] == [(45.0,)] * 2
    same, other = (Experiment("s-cifar10", "er", 200, 0, settings={"margin": m}) for m in (0.25, 0.5))
    assert tables.is_done(same, [older])
    assert not tables.is_done(other, [older])
    del older.settings["weight_decay"]  # its default, as in the preset
    assert tables.is_done(same, [older])
    del older.settings["mean"]  # whose default is not the preset's
    assert not tables.is_done(same, [older])


def test_variants_has_a_row_for_each_difference_between_text_and_code() -> None:
    """Each row changes one setting of `official` to that of `paper`; the published numbers are those of Table 1."""
    official, paper = (presets.settings("s-cifar10", "scommer", 200, v) for v in ("official", "paper"))
    table = tables.paper_numbers()["variants"]
    changes = {row["label"]: row["settings"] for row in table["rows"] if "settings" in row}
    doubts = {label: changes.pop(label) for label in ("warmup=30", "offer=first_epoch")}
    assert all(len(change) == 1 for change in [*changes.values(), *doubts.values()])
    assert {k: v for change in changes.values() for k, v in change.items()} == {
        k: v for k, v in paper.items() if official[k] != v
    }
    assert not any(paper[k] == v or official[k] == v for change in doubts.values() for k, v in change.items())
    (main,) = (r for r in tables.paper_numbers()["main"]["rows"] if (r["method"], r.get("buffer")) == ("scommer", 200))
    assert table["values"] == main["values"][:2]
    assert [row["values"] for row in table["rows"] if "values" in row] == [main["values"][:4]] * 2


def test_runs_of_the_variant_paper_belong_only_to_their_row() -> None:
    literal = record("s-cifar10", "scommer", 200, 0, 60.0)
    literal.experiment = replace(literal.experiment, variant="paper")
    literal.settings.update(as_dict(*presets.resolve("s-cifar10", "scommer", 200, "paper")))
    one = record("s-cifar10", "scommer", 200, 0, 66.0, pi_h=0.5)
    found = {(e.row, e.setting): e.ours for e in tables.entries("variants", [literal, one]) if e.ours}
    assert found == {
        ("paper", "class_il"): (60.0,), ("paper", "task_il"): (60.0,),
        ("pi_h=0.5", "class_il"): (66.0,), ("pi_h=0.5", "task_il"): (66.0,),
    }  # fmt: skip
    needed = {(e.variant, *e.settings): e for e in tables.experiments("variants", [0]) if e.stream == "s-cifar10"}
    done = {key for key, e in needed.items() if tables.is_done(e, [literal, one])}
    assert done == {("paper",), ("official", "pi_h")}


def test_cls_er_has_the_numbers_of_its_authors_too() -> None:
    """S-CIFAR100 only: elsewhere the paper's numbers are those of the authors."""
    rows = tables.entries("main", [record("s-cifar100", "cls-er", 200, 0, 44.0)])
    theirs = [(e.row, e.stream, e.setting, e.paper, e.paper_std) for e in rows if e.authors]
    assert theirs == [
        ("cls-er, 200, by its authors", "s-cifar100", "class_il", 43.80, 1.89),
        ("cls-er, 200, by its authors", "s-cifar100", "task_il", 73.49, 1.04),
        ("cls-er, 500, by its authors", "s-cifar100", "class_il", 51.40, 1.00),
        ("cls-er, 500, by its authors", "s-cifar100", "task_il", 78.12, 0.24),
    ]
    paper, own = (e for e in rows if e.ours and e.setting == "class_il")
    assert (paper.row, paper.paper, paper.misses) == ("cls-er, 200", 35.23, True)
    assert (own.row, own.misses) == ("cls-er, 200, by its authors", False)
    assert own.difference == pytest.approx(0.20)
    for text in forms(rows):
        assert "github.com/NeurAI-Lab/CLS-ER" in text
        assert re.search(r"43\.8", text)
    for text in forms([e for e in rows if e.ours and not e.authors]):
        assert "github" not in text


@pytest.mark.parametrize("name", ["memories", "sensitivity"])
def test_latex_escapes_underscores(name: str) -> None:
    text = as_latex(tables.paper_table(name, tables.entries(name, [])))
    assert r"long\_term" in text
    assert "_" not in text.replace(r"\_", "").replace(r"$\pi_s$", "")


def test_every_form_has_the_same_numbers() -> None:
    runs = [record("s-cifar10", "scommer", 200, s, a) for s, a in enumerate((67.0, 67.5))]
    rows = tables.entries("main", runs)
    terminal, markdown, latex, plain = forms(rows)
    assert max(map(len, terminal.splitlines())) <= 80
    for text in (terminal, markdown):
        assert re.search(r"67\.25 ± 0\.35\W+2\W+69\.19 ± 0\.61\W+-1\.94\W+\*", text)
        assert text.count("…") == 0
    assert "67.25 $\\pm$ 0.35 & 2 & 69.19 $\\pm$ 0.61 & -1.94 & *" in latex
    parsed = list(csv.DictReader(io.StringIO(plain)))
    assert len(parsed) == len(rows) == 64  # 60 of the paper, 4 of CLS-ER's authors
    (mine,) = (r for r in parsed if r["mean"] and r["setting"] == "class_il")
    assert (float(mine["mean"]), mine["seeds"], mine["misses"]) == (67.25, "2", "1")


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'main'"):
        tables.entries("mian", [])
