"""The paper's tables with our numbers beside its own, from records."""

import csv
import io
import math
import statistics
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from rich.table import Table

from scommer.analysis.summary import SETTINGS, spread
from scommer.errors import check_name
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.experiment import Experiment
from scommer.runs.record import Record

TABLES = ("main", "memories", "ablation", "sensitivity", "variants")


@dataclass(frozen=True)
class Entry:
    """One number of a table: what the paper, or a method's authors, report, and what our runs gave."""

    row: str
    stream: str
    setting: str
    paper: float
    paper_std: float | None
    ours: tuple[float, ...] = field(default=())  # a value a seed
    authors: str | None = None  # where a method's own authors report it, if it is theirs and not the paper's
    precisions: tuple[str, ...] = ()  # of our runs

    @property
    def mean(self) -> float:
        """Of our seeds."""
        return statistics.fmean(self.ours) if self.ours else math.nan

    @property
    def std(self) -> float:
        """Standard deviation over our seeds, of a sample; unknown for fewer than two."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 else math.nan

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.mean - self.paper

    @property
    def misses(self) -> bool:
        """Further from the paper than two of its standard deviations, and than two of our own."""
        spreads = [s for s in (self.paper_std, self.std) if s is not None and not math.isnan(s)]
        return bool(self.ours and spreads) and all(abs(self.difference) > 2 * s for s in spreads)


@cache
def paper_numbers() -> dict[str, Any]:
    """The tables of paper.toml."""
    return tomllib.loads((files("scommer.paper") / "paper.toml").read_text())


def entries(table: str, records: Iterable[Record]) -> list[Entry]:
    """A table's numbers in the paper's order, each with the runs that belong to it.

    A run belongs to a number if its settings are exactly the preset's of that cell with the row's changes,
    and it was scored on the test images.
    """
    check_name("table", table, TABLES)
    numbers, records = paper_numbers()[table], list(records)
    made = []
    for row in numbers["rows"]:
        for column, value in _values(numbers, row).items():
            stream, setting = column.split("/")
            found = [r for r in records if _belongs(r, stream, row)]
            ours = tuple(r.accuracy(row.get("memory"), setting) for r in sorted(found, key=_seed))
            kinds = tuple(sorted({r.device.precision or "" for r in found}))
            made.append(Entry(_label(row), stream, setting, *_published(value), ours, precisions=kinds))
            if theirs := row.get("authors", {}).get(column):
                label, source = f"{_label(row)}, by its authors", numbers["authors"][row["method"]]
                made.append(Entry(label, stream, setting, *_published(theirs), ours, source))
    return made


def _values(numbers: dict[str, Any], row: dict[str, Any]) -> dict[str, Sequence[float]]:
    """What is reported in each column of a row, which has the table's columns and values where none of its own."""
    columns, values = (row.get(key) or numbers[key] for key in ("columns", "values"))
    return dict(zip(columns, values, strict=True))


def _published(value: Sequence[float]) -> tuple[float, float | None]:
    return value[0], value[1] if len(value) > 1 else None


def experiments(table: str, seeds: Iterable[int]) -> list[Experiment]:
    """The runs that a table is drawn from, each once."""
    check_name("table", table, TABLES)
    numbers, seeds = paper_numbers()[table], list(seeds)
    needed: dict[str, Experiment] = {}
    for row in numbers["rows"]:
        for column in _values(numbers, row):
            for seed in seeds:
                buffer = row.get("buffer", 200)  # means nothing to a method without replay
                stream, changes = column.split("/")[0], row.get("settings", {})
                e = Experiment(stream, row["method"], buffer, seed, row.get("variant", "official"), settings=changes)
                needed.setdefault(repr(e), e)
    return list(needed.values())


def is_done(experiment: Experiment, records: Iterable[Record]) -> bool:
    """Whether one of the records is of this experiment."""
    e = experiment
    row: dict[str, Any] = {"method": e.method, "variant": e.variant, "settings": e.settings}
    if METHODS[e.method].draws:
        row["buffer"] = e.buffer
    return any(_seed(r) == e.seed and _belongs(r, str(e.stream), row) for r in records)


def _belongs(record: Record, stream: str, row: dict[str, Any]) -> bool:
    method, buffer, variant = row["method"], row.get("buffer"), row.get("variant", "official")
    wanted = {"stream": stream, "method": method, "buffer": buffer, "variant": variant, "validation": 0.0}
    if not wanted.items() <= vars(record.experiment).items():
        return False
    return presets.settings(stream, method, buffer, variant, row.get("settings", {})) == record.settings


def _seed(record: Record) -> int:
    return record.experiment.seed


def _label(row: dict[str, Any]) -> str:
    name = row.get("label") or row.get("memory") or row["method"]
    further = row.get("memory") if "label" in row else row.get("buffer")
    return f"{name}, {further}" if further else name


HEAD = ("row", "stream", "setting", "ours", "seeds", "paper", "diff.", "")


def _cells(entry: Entry) -> tuple[str, ...]:
    return (
        entry.row, entry.stream, SETTINGS[entry.setting],
        spread(entry.mean, entry.std) if entry.ours else "–", str(len(entry.ours)),
        spread(entry.paper, entry.paper_std), f"{entry.difference:+.2f}" if entry.ours else "–",
        "*" if entry.misses else "",
    )  # fmt: skip


def _notes(rows: Sequence[Entry]) -> list[str]:
    """Where the numbers come from that are not the paper's, and which of ours mix precisions."""
    mixed = [f"{e.row} on {e.stream} ({', '.join(e.precisions)})" for e in rows if len(e.precisions) > 1]
    sources = [f"by its authors: {source}" for source in sorted({e.authors for e in rows if e.authors})]
    return sources + ([f"runs of several precisions: {'; '.join(dict.fromkeys(mixed))}"] if mixed else [])


def as_table(title: str, rows: Sequence[Entry]) -> Table:
    """For a terminal."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    table.caption, table.caption_justify = "\n".join(_notes(rows)) or None, "left"
    for name in HEAD:
        numbers = name in ("ours", "seeds", "paper", "diff.")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=name != "row", overflow="fold")
    for entry in rows:
        table.add_row(*_cells(entry))
    return table


def as_markdown(rows: Sequence[Entry]) -> str:
    """For a document."""
    return markdown(HEAD, map(_cells, rows)) + "".join(f"\n{note}\n" for note in _notes(rows))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Any table, with a line below its head."""
    lines = [" | ".join(cells) for cells in (head, *rows)]
    lines.insert(1, " | ".join("---" for _ in head))
    return "".join(f"| {line} |\n" for line in lines)


def as_csv(rows: Sequence[Entry]) -> str:
    """For a spreadsheet: full numbers, empty where there are none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "stream", "setting", "mean", "std", "seeds", "paper_mean", "paper_std", "misses", "source"])
    for e in rows:
        ours = ["" if math.isnan(v) else repr(v) for v in (e.mean, e.std)]
        paper_std = "" if e.paper_std is None else e.paper_std
        source = e.authors or "the paper"
        writer.writerow([e.row, e.stream, e.setting, *ours, len(e.ours), e.paper, paper_std, int(e.misses), source])
    return out.getvalue()


def as_latex(rows: Sequence[Entry]) -> str:
    """For a paper: a tabular with booktabs."""
    notes = [f"% {note}" for note in _notes(rows)]
    lines = [*notes, r"\begin{tabular}{lllrrrrl}", r"\toprule", " & ".join(HEAD) + r" \\", r"\midrule"]
    for entry in rows:
        cells = [
            c.replace("±", r"$\pm$")
            .replace("%", r"\%")
            .replace("_", r"\_")
            .replace(r"π\_s", r"$\pi_s$")
            .replace("–", "--")
            for c in _cells(entry)
        ]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
