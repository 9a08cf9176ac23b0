"""Two sets of runs against each other, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rich.table import Table
from scipy.stats import t as student

from scommer.analysis.groups import Group, groups, label
from scommer.analysis.summary import SETTINGS, names_of
from scommer.errors import UsageError
from scommer.runs.record import Record

FEW = 5  # pairs: with fewer, an interval rests on the guess that differences are normal
NAMED = 5  # sets, in a message


@dataclass(frozen=True)
class Difference:
    """One measure of A and B, a value a pair of seeds."""

    measure: str
    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def mean(self) -> float:
        """d = 1/n Σ (a - b)."""
        return fmean(self.a) - fmean(self.b)

    @property
    def margin(self) -> float:
        """Half of the 95 % interval, t(0.975, n-1) s / √n with s the deviation of a - b; unknown for one pair."""
        n = len(self.a)
        if n < 2:
            return math.nan
        s = stdev(x - y for x, y in zip(self.a, self.b, strict=True))
        return float(student.ppf(0.975, n - 1)) * s / math.sqrt(n)

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.margin  # never of NaN


@dataclass(frozen=True)
class Comparison:
    """A and B on one stream."""

    stream: str
    labels: tuple[str, str]
    seeds: tuple[int, ...]  # that both have
    alone: tuple[tuple[int, ...], tuple[int, ...]]  # seeds of A and of B that have no counterpart
    differences: tuple[Difference, ...]
    precisions: tuple[str, str] = ("", "")  # of the pairs of A and of B


def compare(a: Sequence[Record], b: Sequence[Record]) -> list[Comparison]:
    """For each stream that both have, by the memory that answers."""
    ours, theirs = _by_stream("A", a), _by_stream("B", b)
    shared = [stream for stream in ours if stream in theirs]
    if not shared:
        raise UsageError(f"A and B share no stream: A has {', '.join(ours)}, B has {', '.join(theirs)}")
    made = [_compare(stream, ours[stream], theirs[stream]) for stream in shared]
    if not any(one.seeds for one in made):
        one = made[0]
        raise UsageError(f"A and B share no seed: on {one.stream} A has {_listed(one.alone[0])}, "
                         f"B has {_listed(one.alone[1])}")  # fmt: skip
    return made


def alone(a: Sequence[Record], b: Sequence[Record]) -> list[str]:
    """Notes on streams that only one side has."""
    ours, theirs = ({r.stream.name for r in side} for side in (a, b))
    sides = (("A", ours - theirs), ("B", theirs - ours))
    return [f"Only in {side}, left out: {', '.join(sorted(streams))}." for side, streams in sides if streams]


def _by_stream(side: str, records: Sequence[Record]) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for stream in sorted({r.stream.name for r in records}):
        sets = groups([r for r in records if r.stream.name == stream])
        if len(sets) > 1:
            more = f"; and {len(sets) - NAMED} more" if len(sets) > NAMED else ""
            labels = "; ".join(g.label for g in sets[:NAMED]) + more
            raise UsageError(
                f"{side} mixes settings on {stream} ({labels}): "
                f"choose one with a pattern or a condition, as in runs@method=er@buffer=200 or runs@preset"
            )
        found[stream] = sets[0]
    return found


def _compare(stream: str, a: Group, b: Group) -> Comparison:
    ours, theirs = ({int(r.experiment.seed): r for r in g.records} for g in (a, b))
    seeds = [s for s in ours if s in theirs]
    for s in seeds:
        if ours[s].stream.fingerprint != theirs[s].stream.fingerprint:
            raise UsageError(f"{ours[s].name} and {theirs[s].name} did not learn the same stream of images")
    differences, names = [], names_of(a.records[0].stream.kind)
    for setting, name in SETTINGS.items():
        for measure in ("accuracy", "last", "forgetting"):
            values = [[_score(runs[s], setting, measure) for s in seeds] for runs in (ours, theirs)]
            if seeds and not any(math.isnan(v) for side in values for v in side):
                differences.append(Difference(f"{name} {names[measure]}", tuple(values[0]), tuple(values[1])))
    alone = tuple(s for s in ours if s not in theirs), tuple(s for s in theirs if s not in ours)
    one, other = (_precisions([runs[s] for s in seeds]) for runs in (ours, theirs))
    return Comparison(stream, _labels(a, b), tuple(seeds), alone, tuple(differences), (one, other))


def _precisions(records: Sequence[Record]) -> str:
    return "/".join(sorted({r.device.precision or "" for r in records}))


def _labels(a: Group, b: Group) -> tuple[str, str]:
    """Names that tell the sides apart, by their precision where nothing else does."""
    both = [g.records[0] for g in (a, b)]
    ours, theirs = (label(r, both) for r in both)
    if ours == theirs:
        one, other = (_precisions(g.records) for g in (a, b))
        if one != other:
            return f"{ours}, {one}", f"{theirs}, {other}"
    return ours, theirs


def _score(record: Record, setting: str, measure: str) -> float:
    return record.scores[record.inference].get(setting, {}).get(measure, math.nan)


def as_table(one: Comparison) -> Table:
    """For a terminal: a row a measure."""
    title = f"{one.stream}: A = {one.labels[0]}, B = {one.labels[1]}, in %"
    table = Table(title=title, title_justify="left", min_width=min(len(title), 80))
    table.add_column("measure", no_wrap=True)
    for column in ("A", "B", "A - B", "95 % interval", "pairs"):
        table.add_column(column, justify="right")
    for d in one.differences:
        low, high = d.mean - d.margin, d.mean + d.margin
        interval = "–" if math.isnan(d.margin) else f"{low:+.2f} to {high:+.2f}{' *' if d.clear else ''}"
        table.add_row(d.measure, f"{fmean(d.a):.2f}", f"{fmean(d.b):.2f}", f"{d.mean:+.2f}", interval, str(len(d.a)),
                      style="bold" if d.clear else "")  # fmt: skip
    return table


def notes(one: Comparison) -> list[str]:
    """What a reader must know of the pairs."""
    n, lines = len(one.seeds), []
    if n == 0:
        lines.append(f"{one.stream}: no seed in both, so nothing can be paired.")
    elif n == 1:
        lines.append(f"Too few pairs: only seed {one.seeds[0]} is in both, and an interval needs at least two.")
    elif n < FEW:
        lines.append(f"Few pairs ({n}): the interval holds only if differences between seeds are normal.")
    if one.precisions[0] != one.precisions[1] or "/" in one.precisions[0]:
        lines.append(f"Precisions: A has {one.precisions[0]}, B {one.precisions[1]}.")
    for side, seeds in zip("AB", one.alone, strict=True):
        if seeds:
            lines.append(f"Only in {side}, left out: {_listed(seeds)}.")
    return lines


def _listed(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
