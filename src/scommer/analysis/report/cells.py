"""Tables of a page: cells that show a number and sort by it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scommer.analysis.summary import mean_std

MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """What is read, and what it is sorted by if that is a number."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Row:
    """One line; `strong` if it is of the memory that answers."""

    cells: tuple[Cell, ...]
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A caption, the names of the columns, which of them hold numbers, and rows."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: frozenset[str] = frozenset()
    sortable: bool = True


def word(text: object) -> Cell:
    """Any text; a dash for none."""
    return Cell(MISSING if text is None or text == "" else str(text))


def number(value: float | None, form: str = ".2f") -> Cell:
    """One number, sorted by its full precision; a dash for none."""
    return Cell(MISSING) if value is None or math.isnan(value) else Cell(format(value, form), value)


def spread(values: Sequence[float], form: str = ".2f") -> Cell:
    """Mean ± standard deviation of a sample; the mean alone of one value, a dash for none."""
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return Cell(MISSING)
    return Cell(mean_std(known, form), statistics.fmean(known))


def table(caption: str, head: Sequence[str], rows: Sequence[Row], numbers: Sequence[str] = ()) -> Table:
    """A table without the columns in which no row has anything."""
    kept = [i for i, _ in enumerate(head) if i == 0 or any(r.cells[i].text != MISSING for r in rows)]
    thin = tuple(Row(tuple(r.cells[i] for i in kept), r.strong) for r in rows)
    return Table(caption, tuple(head[i] for i in kept), thin, frozenset(numbers), len(rows) > 1)
