"""The paper's tables: its numbers, and ours from records."""

import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from scommer.analysis.selection import settings_of
from scommer.analysis.summary import SETTINGS
from scommer.analysis.table import Cell, Column, Table, mean_std, number, number_columns, row, spread, text_columns
from scommer.errors import check_name
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.experiment import Experiment
from scommer.runs.record import Record
from scommer.runs.settings import written

TABLES = ("main", "memories", "ablation", "sensitivity", "variants", "further", "plus", "plus-ablation")


@dataclass(frozen=True)
class Entry:
    """One number in a table: as the paper or a method's authors report it, and from our runs."""

    row: str
    stream: str
    setting: str
    paper: float
    paper_std: float | None
    ours: tuple[float, ...] = ()  # a value for each seed
    authors: str | None = None  # the source, if the number is from the method's authors instead of the paper
    precisions: tuple[str, ...] = ()  # of our runs
    earlier: str = ""  # settings of our runs that the preset no longer has
    method: str = ""

    @property
    def mean(self) -> float:
        """The mean over our seeds."""
        return statistics.fmean(self.ours) if self.ours else math.nan

    @property
    def std(self) -> float:
        """The standard deviation over our seeds, of a sample; NaN for fewer than two."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 else math.nan

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.mean - self.paper

    @property
    def misses(self) -> bool:
        """Whether ours is off by more than two of the paper's standard deviations, and two of our own."""
        spreads = [s for s in (self.paper_std, self.std) if s is not None and not math.isnan(s)]
        return bool(self.ours and spreads) and all(abs(self.difference) > 2 * s for s in spreads)


@cache
def paper_numbers() -> dict[str, Any]:
    """Return the tables of paper.toml."""
    return tomllib.loads((files("scommer.paper") / "paper.toml").read_text())


def _numbers(table: str) -> dict[str, Any]:
    check_name("table", table, TABLES)
    numbers: dict[str, Any] = paper_numbers()[table]
    return numbers


def entries(table: str, records: Iterable[Record]) -> list[Entry]:
    """Return a table's numbers in the paper's order, each with the runs that belong to it.

    A run belongs to a number if its settings are exactly those of the cell's preset with the changes of the row, and if
    it was scored on the test images. Runs of the earlier preset stand in while there are more of them.
    """
    numbers, records = _numbers(table), list(records)
    made = []
    for line in numbers["rows"]:
        for column, value in _values(numbers, line).items():
            stream, setting = column.split("/")
            found = sorted(runs_of(records, stream, line), key=lambda r: r.experiment.seed)
            ours = tuple(r.accuracy(line.get("memory"), setting) for r in found)
            precisions = tuple(sorted({r.device.precision or "unknown" for r in found}))
            earlier = _earlier(found, stream, line)
            entry = Entry(_label(line), stream, setting, *_published(value), ours, None, precisions, earlier)
            made.append(replace(entry, method=line["method"]))
            if theirs := line.get("authors", {}).get(column):
                label, source = f"{_label(line)}, by its authors", numbers["authors"][line["method"]]
                made.append(Entry(label, stream, setting, *_published(theirs), ours, source))
    return made


def _values(numbers: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, Sequence[float]]:
    """Return what a row reports in each column; a row without columns or values has the table's."""
    columns, values = (line.get(key) or numbers[key] for key in ("columns", "values"))
    return dict(zip(columns, values, strict=True))


def _published(value: Sequence[float]) -> tuple[float, float | None]:
    return value[0], value[1] if len(value) > 1 else None


def experiments(table: str, seeds: Iterable[int]) -> list[Experiment]:
    """Return the experiments that a table needs, each once."""
    numbers, seeds = _numbers(table), list(seeds)
    needed: dict[str, Experiment] = {}
    for line in numbers["rows"]:
        for column in _values(numbers, line):
            for seed in seeds:
                buffer = line.get("buffer", 200)  # ignored by a method without replay
                stream, changes = column.split("/")[0], line.get("settings", {})
                e = Experiment(stream, line["method"], buffer, seed, line.get("variant", "official"), settings=changes)
                needed.setdefault(repr(e), e)
    return list(needed.values())


def is_done(experiment: Experiment, records: Iterable[Record]) -> bool:
    """Return whether one of the records is of this experiment."""
    e = experiment
    line: dict[str, Any] = {"method": e.method, "variant": e.variant, "settings": e.settings}
    if METHODS[e.method].draws:
        line["buffer"] = e.buffer
    return bool(_exactly((r for r in records if r.experiment.seed == e.seed), str(e.stream), line))


def runs_of(records: Iterable[Record], stream: str, line: Mapping[str, Any]) -> list[Record]:
    """Return the runs of a row's cell: with today's preset or, if there are more of these, with the earlier one."""
    records = list(records)
    before = presets.earlier(line["method"]) | line.get("settings", {})
    return max(_exactly(records, stream, line), _exactly(records, stream, {**line, "settings": before}), key=len)


def _exactly(records: Iterable[Record], stream: str, line: Mapping[str, Any]) -> list[Record]:
    """Return the runs with a row's settings; a setting that a run's version did not have has today's default."""
    method, buffer, variant = line["method"], line.get("buffer"), line.get("variant", "official")
    cell, settings = (stream, method, buffer, variant, 0.0), None
    found = []
    for r in records:
        e = r.experiment
        if (e.stream, e.method, e.buffer, e.variant, e.validation) == cell:
            settings = settings or presets.settings(stream, method, buffer, variant, line.get("settings", {}))
            found += [r] if settings_of(r) == settings else []
    return found


def _earlier(runs: Sequence[Record], stream: str, line: Mapping[str, Any]) -> str:
    """Return the settings of a cell's runs that today's preset does not have, in words."""
    if not runs or not (before := presets.earlier(line["method"])):
        return ""
    variant, changes = line.get("variant", "official"), line.get("settings", {})
    today = presets.settings(stream, line["method"], line.get("buffer"), variant, changes)
    held = settings_of(runs[0])
    return ", ".join(f"{name}={written(held[name])}" for name in before if held[name] != today[name])


def _label(line: Mapping[str, Any]) -> str:
    name: str = line.get("label") or line.get("memory") or line["method"]
    further = line.get("memory") if "label" in line else line.get("buffer")
    return f"{name}, {further}" if further else name


def paper_table(name: str, rows: Sequence[Entry]) -> Table:
    """Return our numbers next to the paper's; a star marks a miss."""
    texts = (Column("row"), Column("stream", wrap=False), Column("setting", wrap=False))
    numbers = (Column(n, number=True, wrap=False) for n in ("ours", "seeds", "paper", "diff."))
    cells = tuple(
        row(
            e.row,
            e.stream,
            SETTINGS[e.setting],
            spread(e.ours),
            number(len(e.ours), "d"),
            Cell(mean_std(e.paper, e.paper_std), e.paper),
            number(e.difference, "+.2f"),
            "*" if e.misses else "",
        )
        for e in rows
    )
    columns = (*texts, *numbers, Column("", wrap=False))
    return Table(paper_numbers()[name]["source"], columns, cells, notes=tuple(_notes(rows)), dense=True)


def number_table(name: str, rows: Sequence[Entry]) -> Table:
    """Return the same numbers one by one, for a spreadsheet."""
    cells = tuple(
        row(
            e.row,
            e.stream,
            e.setting,
            number(e.mean),
            number(e.std),
            number(len(e.ours), "d"),
            number(e.paper),
            number(e.paper_std),
            number(int(e.misses), "d"),
            e.authors or "the paper",
        )
        for e in rows
    )
    numbers = number_columns("mean", "std", "seeds", "paper_mean", "paper_std", "misses")
    columns = (*text_columns("row", "stream", "setting"), *numbers, *text_columns("source"))
    return Table(paper_numbers()[name]["source"], columns, cells)


def _notes(rows: Sequence[Entry]) -> list[str]:
    """Return sources that are not the paper, and which of ours mix precisions or are of earlier runs."""
    mixed = [f"{e.row} on {e.stream} ({', '.join(e.precisions)})" for e in rows if len(e.precisions) > 1]
    sources = [f"by its authors: {source}" for source in sorted({e.authors for e in rows if e.authors})]
    for settings in sorted({e.earlier for e in rows if e.earlier}):
        before = dict.fromkeys(e.row for e in rows if e.earlier == settings)
        others = dict.fromkeys(e.row for e in rows if e.ours and e.row not in before)
        short = f"all but {'; '.join(others)}" if others else "all"
        names = "; ".join(before) if len(before) <= len(others) else short
        sources.append(f"runs of an earlier preset, with {settings}: {names}")
    return sources + ([f"runs of several precisions: {'; '.join(dict.fromkeys(mixed))}"] if mixed else [])
