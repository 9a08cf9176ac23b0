"""The table model: its cells, and the same content in every form."""

import csv
import io
import math
import statistics
from html.parser import HTMLParser

import pytest
from rich.console import Console

from scommer.analysis.table import (
    MISSING,
    Column,
    Table,
    as_csv,
    as_html,
    as_latex,
    as_markdown,
    as_rich,
    number,
    number_columns,
    row,
    spread,
    text,
    text_columns,
)

SCORES = [66.1, 68.3, 67.0]
TABLE = Table(
    "Scores <of all> (%)",
    (*text_columns("method"), *number_columns("accuracy", "seeds"), *text_columns("note")),
    (
        row("er_1 & co", spread(SCORES), number(3, "d"), "50 % | <b>"),
        row("sgd", number(19.75), number(1, "d"), text(None), strong=True),
        row("none", number(None), number(0, "d"), ""),
    ),
    notes=("Source: a & b_c.",),
)
MEAN = statistics.fmean(SCORES)
SHOWN = "67.13 ± 1.11"  # statistics.stdev by hand: √(((1.033…)² + (1.166…)² + (0.133…)²) / 2)


class Html(HTMLParser):
    """The cells of each row with their attributes, and all text by tag."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, dict[str, str | None]]]] = []
        self.texts: dict[str, list[str]] = {}
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        self.texts.setdefault(tag, []).append("")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append(("", dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"th", "td"} & set(self.open):
            content, attributes = self.rows[-1].pop()
            self.rows[-1].append((content + data, attributes))


def printed(table: Table, width: int = 80) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), markup=False)
    console.print(as_rich(table))
    return console.export_text()


# --- cells


def test_a_spread_is_the_mean_and_the_deviation_of_a_sample() -> None:
    cell = spread(SCORES)
    assert cell.text == f"{MEAN:.2f} ± {statistics.stdev(SCORES):.2f}" == SHOWN
    assert cell.value == pytest.approx(MEAN)
    assert spread([66.126]).text == "66.13"  # one value has no deviation
    assert spread([math.nan, 66.126, math.nan]).text == "66.13"
    assert spread([1.0, 3.0], ".0f").text == "2 ± 1"


def test_what_is_missing_is_a_dash_without_a_value() -> None:
    for cell in (number(None), number(math.nan), spread([]), spread([math.nan]), text(None)):
        assert (cell.text, cell.value) == (MISSING, None)
    assert text("").text == ""


def test_numbers_keep_their_full_precision_as_value() -> None:
    assert number(1 / 3, ".1f").text == "0.3"
    assert number(1 / 3, ".1f").value == 1 / 3


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (-0.004, ".2f", "0.00"),
        (-0.4, ",.0f", "0"),
        (-0.004, "+.2f", "0.00"),
        (-0.005001, ".2f", "-0.01"),
        (-10, "d", "-10"),
    ],
)
def test_zero_has_no_sign(value: float, form: str, shown: str) -> None:
    assert number(value, form).text == shown


# --- columns


def test_columns_can_be_left_out() -> None:
    thin = TABLE.without("accuracy", "note")
    assert [c.name for c in thin.columns] == ["method", "seeds"]
    assert [[c.text for c in r.cells] for r in thin.rows] == [["er_1 & co", "3"], ["sgd", "1"], ["none", "0"]]
    assert [r.strong for r in thin.rows] == [False, True, False]


def test_empty_columns_are_left_out_except_the_first() -> None:
    empty = Table("", text_columns("a", "b", "c"), (row(text(None), "x", text(None)), row(text(None), "", text(None))))
    assert [c.name for c in empty.without_empty().columns] == ["a", "b"]


# --- forms


def test_markdown_is_a_table_whose_bars_are_escaped() -> None:
    head, rule, *lines, _, note = as_markdown(TABLE).splitlines()
    assert head == "| method | accuracy | seeds | note |"
    assert rule == "| --- | --- | --- | --- |"
    assert lines == [
        rf"| er_1 & co | {SHOWN} | 3 | 50 % \| <b> |",
        f"| **sgd** | **19.75** | **1** | **{MISSING}** |",
        f"| none | {MISSING} | 0 |  |",
    ]
    assert note == "Source: a & b_c."


def test_latex_is_a_tabular_with_its_special_characters_escaped() -> None:
    lines = as_latex(TABLE).splitlines()
    assert lines[:3] == ["% Source: a & b_c.", r"\begin{tabular}{lrrl}", r"\toprule"]
    assert lines[3:5] == [r"method & accuracy & seeds & note \\", r"\midrule"]
    assert lines[5] == r"er\_1 \& co & 67.13 $\pm$ 1.11 & 3 & 50 \% | <b> \\"
    assert lines[6] == r"\textbf{sgd} & \textbf{19.75} & \textbf{1} & \textbf{--} \\"
    assert lines[7] == r"none & -- & 0 &  \\"
    assert lines[8:] == [r"\bottomrule", r"\end{tabular}"]


def test_csv_has_full_numbers_and_nothing_where_there_are_none() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert [r["accuracy"] for r in rows] == [repr(MEAN), "19.75", ""]
    assert [r["seeds"] for r in rows] == ["3", "1", "0"]
    assert [r["note"] for r in rows] == ["50 % | <b>", "", ""]


def test_html_escapes_all_text_and_holds_the_value_to_sort_by() -> None:
    found = Html(as_html(TABLE, "key"))
    assert set(found.tags) == {"table", "caption", "thead", "tbody", "tr", "th", "td", "button", "p"}
    assert found.texts["caption"] == ["Scores <of all> (%)"]
    assert found.texts["p"] == ["Source: a & b_c."]
    head, *rows = found.rows
    assert [content for content, _ in head] == ["method", "accuracy", "seeds", "note"]
    assert [[content for content, _ in cells] for cells in rows] == [[c.text for c in r.cells] for r in TABLE.rows]
    key = rows[0][1][1]["data-value"]
    assert float(key) == pytest.approx(MEAN, rel=1e-8)
    assert [attributes.get("data-value") for _, attributes in rows[0]] == [None, key, "3", None]
    assert [attributes.get("class") for _, attributes in rows[0]] == [None, "number", "number", None]
    assert 'id="key"' in as_html(TABLE, "key")
    assert as_html(TABLE, "key").count('<tr class="strong">') == 1


def test_only_tables_of_several_rows_sort() -> None:
    assert "button" in Html(as_html(TABLE, "k")).tags
    for table in (Table("", TABLE.columns, TABLE.rows[:1]), Table("", TABLE.columns, TABLE.rows, sortable=False)):
        assert "button" not in Html(as_html(table, "k")).tags


@pytest.mark.parametrize("dense", [False, True])
def test_a_terminal_shows_every_cell_the_title_and_the_notes(dense: bool) -> None:
    shown = printed(Table(TABLE.title, TABLE.columns, TABLE.rows, TABLE.notes, dense=dense))
    for content in (TABLE.title, *TABLE.notes, *(c.text for r in TABLE.rows for c in r.cells)):
        assert content in shown
    assert ("│" in shown) != dense
    assert [r.style for r in as_rich(TABLE).rows] == ["", "bold", ""]


def test_in_a_narrow_terminal_long_names_continue_on_the_next_line() -> None:
    name = "a-name-that-is-longer-than-the-terminal-is-wide"
    for wrap in (True, False):
        columns = (Column("run"), Column("accuracy", number=True, wrap=wrap))
        shown = printed(Table("", columns, (row(name, number(12.345)),), dense=True), width=30)
        assert name in "".join(line.replace("12.35", "").strip() for line in shown.splitlines()[1:])
        assert "…" not in shown
        assert "12.35" in shown


def test_a_title_is_wider_than_its_table_without_breaking() -> None:
    narrow = Table("a title that is much wider than the only column", text_columns("a"), (row("x"),))
    assert printed(narrow).splitlines()[0].strip() == narrow.title


def test_indented_lines_stay_indented_where_a_terminal_continues_them() -> None:
    table = Table("", text_columns("run"), (row("[a]\n  " + "one=1, two=2, " * 4),), dense=True)
    console = Console(width=24, record=True)
    with console.capture() as shown:
        console.print(as_rich(table))
    _, name, *settings = (line.rstrip() for line in shown.get().splitlines())
    assert name == "[a]"
    assert len(settings) > 1
    assert all(line.startswith("  ") and line[2] != " " for line in settings)
    assert " ".join(line.strip() for line in settings) == ("one=1, two=2, " * 4).strip()
