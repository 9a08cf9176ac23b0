"""The functions for templates: runs, the paper's numbers, differences, tables, timings, and claims."""

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from scommer.analysis.groups import group_runs
from scommer.analysis.selection import load_records
from scommer.analysis.table import as_markdown
from scommer.errors import UsageError
from scommer.paper import tables
from scommer.paper.documents.runs import Runs, paired
from scommer.paper.documents.sensitivity import Sensitivity, sensitivity
from scommer.runs import presets
from scommer.runs.record import Record
from scommer.runs.settings import written

RESULTS = "results"  # the folder of the runs that the paper's tables compare with
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class Vocabulary:
    """The functions of a template, for the records below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._load = cache(lambda path: tuple(load_records(str(root / path))))
        self._entries = cache(lambda table: tuple(tables.entries(table, self._load(RESULTS))))

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by the names that templates use."""
        return {
            "runs": self.runs, "select": self.select, "same_runs": self.same_runs, "diff": paired,
            "cell": self.cell, "cells": self.cells, "rows": rows, "table": self.table,
            "sensitivity": self.sensitivity, "settings_run": self.settings_run,
            "bench": self.bench, "data": self.data, "preset": presets.settings,
            "chance_of_star": chance_of_star, "log": math.log, "claim": claim,
        }  # fmt: skip

    def runs(
        self, stream: str, method: str, buffer: int | None = None, variant: str = "official", **changes: Any
    ) -> Runs:
        """Return the runs in `results` whose settings are exactly the preset with these changes."""
        cell = {"method": method, "buffer": buffer, "variant": variant, "settings": changes}
        found = tables.runs_of(self._load(RESULTS), stream, cell)
        if not found:
            asked = ", ".join(written(v) for v in (stream, method, buffer or "no buffer", variant))
            changed = "".join(f", {name}={written(value)}" for name, value in changes.items())
            raise UsageError(f"{RESULTS} has no run of {asked}{changed}: run it, or correct the selection")
        return _by_seed(found)

    def select(self, path: str) -> Runs:
        """Return the runs that a path names, as on the command line: `docs/precision@preset`."""
        return _by_seed(self._load(path))

    def same_runs(self, runs: Runs, folder: str) -> Runs:
        """Return the runs of the same names, in the same order, in another folder."""
        held = {r.name: r for r in self._load(folder)}
        missing = [name for name in runs.names if name not in held]
        if missing:
            raise UsageError(f"{folder} has no run {', '.join(missing)}")
        return Runs(tuple(held[name] for name in runs.names), runs.memory, runs.setting)

    def cell(self, table: str, row: str, stream: str = "s-cifar10", setting: str = "class_il") -> tables.Entry:
        """Return a number of a table: the paper's and ours."""
        found = self.cells(table, [row], [stream], setting)
        if len(found) != 1 or not found[0].ours:
            there = "; ".join(sorted({e.row for e in self._entries(table) if e.ours}))
            raise UsageError(
                f"table {table} has no runs of '{row}' on {stream} in {setting}: rows with runs are {there}"
            )
        return found[0]

    def cells(
        self,
        table: str,
        rows: Sequence[str] | None = None,
        streams: Sequence[str] | None = None,
        setting: str | None = None,
    ) -> list[tables.Entry]:
        """Return the paper's numbers in a table, or in some of its rows, each with ours."""
        return [
            e for e in self._entries(table)
            if (e.row in rows if rows is not None else not e.authors)
            and (streams is None or e.stream in streams) and setting in (None, e.setting)
        ]  # fmt: skip

    def table(self, table: str, rows: Sequence[str]) -> str:
        """Return some rows of a table in Markdown."""
        return as_markdown(tables.paper_table(table, self.cells(table, rows))).rstrip("\n")

    def sensitivity(self, memory: str) -> Sensitivity:
        """Return the paper's sensitivity table for a memory."""
        return sensitivity(memory, self._entries("sensitivity"))

    def settings_run(self, path: str) -> list[Runs]:
        """Return the runs that a path names, by settings: one set for each."""
        return [Runs(g.records) for g in group_runs(self._load(path))]

    def bench(self, name: str) -> "Bench":
        """Return a record of `scommer bench`."""
        path = self.root / RESULTS / "bench" / f"{name}.json"
        if not path.exists():
            there = sorted(p.stem for p in path.parent.glob("*.json"))
            raise UsageError(f"no bench '{name}' in {path.parent}: there are {', '.join(there)}")
        return Bench(name, json.loads(path.read_text()))

    def data(self, path: str) -> dict[str, Any]:
        """Return the content of a TOML or JSON file."""
        text = (self.root / path).read_text()
        found: dict[str, Any] = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        return found


class Bench:
    """A record of `scommer bench`: its fields, and its timings by what was timed."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name = name
        self.fields = fields
        self._timings = {t["what"]: t for t in fields["timings"]}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None

    def ms(self, what: str = "compiled", learners: int = 1) -> float:
        """Return the time of one learner's step."""
        return float(self._timing(what, learners)["ms"])

    def gib(self, what: str = "compiled", learners: int = 1) -> float:
        """Return the peak GPU memory."""
        return float(self._timing(what, learners)["mib"]) / 1024

    def _timing(self, what: str, learners: int) -> dict[str, Any]:
        key = f"{what}, {'one learner' if learners == 1 else f'{learners} learners side by side'}"
        if key not in self._timings:
            raise UsageError(f"bench '{self.name}' did not time '{key}': it has {'; '.join(self._timings)}")
        timing: dict[str, Any] = self._timings[key]
        return timing


def _by_seed(records: Iterable[Record]) -> Runs:
    return Runs(tuple(sorted(records, key=lambda r: (r.experiment.seed, r.name))))


def rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table in paper.toml."""
    found: list[dict[str, Any]] = tables.paper_numbers()[table]["rows"]
    return found


def claim(statement: str, holds: object) -> None:
    """Stop rendering if the records contradict the next sentence."""
    if not holds:
        raise UsageError(f"the records do not show that {statement}: correct the sentence and its claim")


def chance_of_star(runs: int) -> float:
    """Return the chance that a run is over two standard deviations from the mean, both estimated from `runs` others.

    |x - mean| > 2 s with x, mean and s of one normal distribution: |t| > 2 / √(1 + 1/n), n - 1 degrees of freedom.
    """
    return float(2 * student.sf(2 / (1 + 1 / runs) ** 0.5, runs - 1))


def digits(value: float, places: int) -> str:
    """Return a number with this many decimals, and no sign before zero."""
    text = f"{value:,.{places}f}"
    return text.lstrip("-") if not text.strip("-0.") else text


def words(number: int) -> str:
    """Return a small number as a word."""
    return WORDS[number]


def ordinal(number: int) -> str:
    """Return a small rank as a word."""
    return ORDINALS[number - 1]


def relative(difference: float) -> str:
    """Return a difference in words: `0.76 higher` or `0.18 lower`."""
    return f"{digits(abs(difference), 2)} {'higher' if difference > 0 else 'lower'}"


FILTERS: dict[str, Callable[..., str]] = {
    "digits": digits, "words": words, "ordinal": ordinal, "relative": relative, "written": written,
}  # fmt: skip
