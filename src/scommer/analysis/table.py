"""Tables: one model, rendered for a terminal, a page, Markdown, LaTeX and spreadsheets."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from rich.console import Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from scommer.errors import printable

MISSING = "–"
LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "π": r"$\pi$", MISSING: "--"}
)


@dataclass(frozen=True)
class Cell:
    """The text to show, and the number behind it if there is one."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """A column's name and alignment."""

    name: str
    number: bool = False  # aligned to the right
    wrap: bool = True  # in a terminal, long text continues on the next line


@dataclass(frozen=True)
class Row:
    """The cells of one row."""

    cells: tuple[Cell, ...]
    strong: bool = False  # in bold


@dataclass(frozen=True)
class Table:
    """A title, columns, rows, and notes below them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    sortable: bool = True  # on a page, by a click on a column's name
    dense: bool = False  # in a terminal, without rules

    def without(self, *names: str) -> "Table":
        """Return the table without these columns."""
        return self._keep([i for i, c in enumerate(self.columns) if c.name not in names])

    def without_empty(self) -> "Table":
        """Return the table without columns, after the first, in which no row has anything."""
        filled = [i for i, _ in enumerate(self.columns) if any(r.cells[i].text != MISSING for r in self.rows)]
        return self._keep(sorted({0, *filled}))

    def _keep(self, kept: Sequence[int]) -> "Table":
        rows = tuple(replace(r, cells=tuple(r.cells[i] for i in kept)) for r in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=rows)


# --- parts


def text_columns(*names: str) -> tuple[Column, ...]:
    """Return columns of text."""
    return tuple(Column(name) for name in names)


def number_columns(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(name, number=True) for name in names)


def row(*cells: Cell | str, strong: bool = False) -> Row:
    """Return a row of cells; a string is a cell of text."""
    return Row(tuple(text(c) if isinstance(c, str) else c for c in cells), strong)


def text(value: object) -> Cell:
    """Return a cell of text, a dash for None."""
    return Cell(MISSING if value is None else str(value))


def number(value: float | None, form: str = ".2f") -> Cell:
    """Return a cell with a number, a dash for None and NaN."""
    if value is None or math.isnan(value):
        return Cell(MISSING)
    text = format(value, form)
    return Cell(text.lstrip("-") if not text.strip("-0.,") else text, value)  # no -0.00


def spread(values: Sequence[float], form: str = ".2f") -> Cell:
    """Return a cell with mean ± standard deviation (of a sample): `69.19 ± 0.61`.

    NaN is left out. One value has no deviation, and none is a dash.
    """
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return Cell(MISSING)
    mean = statistics.fmean(known)
    return Cell(mean_std(mean, statistics.stdev(known) if len(known) > 1 else None, form), mean)


def mean_std(mean: float, std: float | None, form: str = ".2f") -> str:
    """Return `69.19 ± 0.61`, or the mean alone."""
    alone = std is None or math.isnan(std)
    return format(mean, form) if alone else f"{format(mean, form)} ± {format(std, form)}"


# --- renderers


def as_rich(table: Table) -> RichTable:
    """Return a table to print in a terminal."""
    made = RichTable(title=printable(table.title) or None, title_justify="left", min_width=min(len(table.title), 80))
    if table.dense:
        made.box, made.padding, made.header_style = None, (0, 1, 0, 0), "bold underline"
        made.min_width = None
    made.caption, made.caption_justify = printable("\n".join(table.notes)) or None, "left"
    for c in table.columns:
        made.add_column(c.name, justify="right" if c.number else "left", no_wrap=not c.wrap, overflow="fold")
    for r in table.rows:
        made.add_row(*(_indented(printable(c.text)) for c in r.cells), style="bold" if r.strong else "")
    return made


def _indented(text: str) -> str | Group:
    """Return a cell whose indented lines stay indented where they are continued."""
    if "\n " not in text:
        return text
    lines = [(line.lstrip(), line) for line in text.split("\n")]
    return Group(*(Padding.indent(Text(bare), len(line) - len(bare)) for bare, line in lines))


def as_html(table: Table, key: str) -> Markup:
    """Return an element `table` whose caption has the id `key`; all text is escaped."""
    return Markup(_html_template().render(table=table, key=key))


@cache
def _html_template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((files("scommer.analysis") / "table.html").read_text(encoding="utf-8"))


def as_markdown(table: Table) -> str:
    """Return the table in Markdown, without its title."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", r"\|") for c in cells) + " |\n"

    rows = [[f"**{c.text}**" if r.strong else c.text for c in r.cells] for r in table.rows]
    head = [c.name for c in table.columns]
    return "".join(map(line, [head, ["---"] * len(head), *rows])) + "".join(f"\n{note}\n" for note in table.notes)


def as_latex(table: Table) -> str:
    """Return a tabular with booktabs, without the title; notes are comments."""

    def line(cells: Sequence[str], strong: bool = False) -> str:
        escaped = [c.translate(LATEX).replace(r"$\pi$\_s", r"$\pi_s$") for c in cells]
        return " & ".join(rf"\textbf{{{c}}}" if strong else c for c in escaped) + r" \\"

    alignment = "".join("r" if c.number else "l" for c in table.columns)
    lines = [*(f"% {note}" for note in table.notes), rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += [line([c.name for c in table.columns]), r"\midrule"]
    lines += [line([c.text for c in r.cells], r.strong) for r in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def as_csv(table: Table) -> str:
    """Return comma-separated values: numbers with full precision, empty where there are none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(c.name for c in table.columns)
    for r in table.rows:
        writer.writerow("" if c.text == MISSING else c.text if c.value is None else c.value for c in r.cells)
    return out.getvalue()
