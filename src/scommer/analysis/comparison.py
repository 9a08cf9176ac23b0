"""Compare two sets of runs, paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t as student

from scommer.analysis.groups import Group, group_runs, label
from scommer.analysis.summary import SETTINGS, score_names
from scommer.analysis.table import Cell, Column, Table, number, number_columns, row
from scommer.errors import UsageError
from scommer.runs.record import Record

FEW = 5  # pairs: with fewer, the interval relies on normal differences
LISTED = 5  # groups that a message lists
CLEARLY = 2.0  # points by which a forgetting must be lower to be worth a note


@dataclass(frozen=True)
class Difference:
    """One measure of A and of B, with a value for each pair."""

    measure: str
    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def mean(self) -> float:
        """d = 1/n Σ (a - b)."""
        return fmean(self.a) - fmean(self.b)

    @property
    def margin(self) -> float:
        """Half of the 95 % interval, t(0.975, n-1) s / √n with s the deviation of a - b; NaN for one pair."""
        n = len(self.a)
        if n < 2:
            return math.nan
        s = stdev(x - y for x, y in zip(self.a, self.b, strict=True))
        return float(student.ppf(0.975, n - 1)) * s / math.sqrt(n)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.margin

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.margin

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return abs(self.mean) > self.margin  # False for NaN


@dataclass(frozen=True)
class Comparison:
    """A and B on one stream."""

    stream: str
    labels: tuple[str, str]
    seeds: tuple[int, ...]  # in both
    unpaired: tuple[tuple[int, ...], tuple[int, ...]]  # seeds of A alone and of B alone
    differences: tuple[Difference, ...]
    precisions: tuple[str, str] = ("", "")  # of A's pairs and of B's
    learned_less: tuple[str, ...] = ()  # where forgetting is lower because there was less to forget


def compare(a: Sequence[Record], b: Sequence[Record]) -> list[Comparison]:
    """Compare the memories used for inference, on each stream that both sides have."""
    ours, theirs = _by_stream("A", a), _by_stream("B", b)
    shared = [stream for stream in ours if stream in theirs]
    if not shared:
        raise UsageError(f"A and B share no stream: A has {', '.join(ours)}, B has {', '.join(theirs)}")
    made = [_compare(stream, ours[stream], theirs[stream]) for stream in shared]
    if not any(one.seeds for one in made):
        one = made[0]
        sides = (f"{side} has {_listed(seeds)}" for side, seeds in zip("AB", one.unpaired, strict=True))
        raise UsageError(f"A and B share no seed: on {one.stream} {', '.join(sides)}")
    return made


def unpaired_streams(a: Sequence[Record], b: Sequence[Record]) -> list[str]:
    """Return notes on the streams that only one side has."""
    ours, theirs = ({r.stream.name for r in side} for side in (a, b))
    sides = (("A", ours - theirs), ("B", theirs - ours))
    return [f"Only in {side}, left out: {', '.join(sorted(streams))}." for side, streams in sides if streams]


def _by_stream(side: str, records: Sequence[Record]) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for stream in sorted({r.stream.name for r in records}):
        groups = group_runs([r for r in records if r.stream.name == stream])
        if len(groups) > 1:
            more = f"; and {len(groups) - LISTED} more" if len(groups) > LISTED else ""
            labels = "; ".join(g.label for g in groups[:LISTED]) + more
            raise UsageError(
                f"{side} mixes settings on {stream} ({labels}): "
                f"choose one with a pattern or a condition, as in runs@method=er@buffer=200 or runs@preset"
            )
        found[stream] = groups[0]
    return found


def _compare(stream: str, a: Group, b: Group) -> Comparison:
    ours, theirs = ({r.experiment.seed: r for r in g.records} for g in (a, b))
    seeds = [s for s in ours if s in theirs]
    for s in seeds:
        if ours[s].stream.fingerprint != theirs[s].stream.fingerprint:
            raise UsageError(f"{ours[s].name} and {theirs[s].name} did not learn the same images in the same order")
    differences, names = [], score_names(a.records[0].stream.kind)
    for setting, name in SETTINGS.items():
        for score in ("accuracy", "last", "forgetting"):
            values = [[_score(runs[s], setting, score) for s in seeds] for runs in (ours, theirs)]
            if seeds and not any(math.isnan(v) for side in values for v in side):
                differences.append(Difference(f"{name} {names[score]}", tuple(values[0]), tuple(values[1])))
    unpaired = tuple(s for s in ours if s not in theirs), tuple(s for s in theirs if s not in ours)
    one, other = (_precisions([runs[s] for s in seeds]) for runs in (ours, theirs))
    less = _learned_less([ours[s] for s in seeds], [theirs[s] for s in seeds]) if seeds else ()
    return Comparison(stream, _labels(a, b), tuple(seeds), unpaired, tuple(differences), (one, other), less)


def _learned_less(a: Sequence[Record], b: Sequence[Record]) -> tuple[str, ...]:
    """Return a note for each setting in which one side forgets less, learned less, and keeps no more of it."""
    lines = []
    for setting, name in SETTINGS.items():
        if any(setting not in r.scores[r.inference] or len(r.matrix()) == 1 for r in (*a, *b)):
            continue
        best, kept = ([fmean(f(r.matrix(setting=setting)) for r in runs) for runs in (a, b)] for f in (_best, _kept))
        for side, other in ((0, 1), (1, 0)):
            forgets_less = best[side] - kept[side] < best[other] - kept[other] - CLEARLY
            if forgets_less and kept[side] <= kept[other]:  # so it learned less, by more than CLEARLY
                lines.append(
                    f"{name} forgetting is lower in {'AB'[side]} only because less was learned: before the last task, "
                    f"tasks reach {best[side]:.1f} % there and {best[other]:.1f} % in {'AB'[other]}, "
                    f"and {kept[side]:.1f} % and {kept[other]:.1f} % are left at the end."
                )
    return tuple(lines)


def _best(r: np.ndarray) -> float:
    """Return the best accuracy of each task but the last before the end, which forgetting starts from: the mean."""
    return float(r[:-1, :-1].max(0).mean())


def _kept(r: np.ndarray) -> float:
    """Return the mean accuracy on these tasks at the end."""
    return float(r[-1, :-1].mean())


def _precisions(records: Sequence[Record]) -> str:
    return "/".join(sorted({r.device.precision or "unknown" for r in records}))


def _labels(a: Group, b: Group) -> tuple[str, str]:
    """Return labels that tell the sides apart, by their precision where nothing else does."""
    both = [g.records[0] for g in (a, b)]
    ours, theirs = (label(r, both) for r in both)
    if ours == theirs:
        one, other = (_precisions(g.records) for g in (a, b))
        if one != other:
            return f"{ours}, {one}", f"{theirs}, {other}"
    return ours, theirs


def _score(record: Record, setting: str, score: str) -> float:
    return record.scores[record.inference].get(setting, {}).get(score, math.nan)


def comparison_table(one: Comparison) -> Table:
    """Return a row for each measure, strong where the interval excludes 0."""
    rows = []
    for d in one.differences:
        interval = "–" if math.isnan(d.margin) else f"{d.low:+.2f} to {d.high:+.2f}{' *' if d.clear else ''}"
        means = (number(fmean(d.a)), number(fmean(d.b)), number(d.mean, "+.2f"))
        rows.append(row(d.measure, *means, Cell(interval), number(len(d.a), "d"), strong=d.clear))
    columns = (Column("measure", wrap=False), *number_columns("A", "B", "A - B", "95 % interval", "pairs"))
    return Table(f"{one.stream}: A = {one.labels[0]}, B = {one.labels[1]}, in %", columns, tuple(rows))


def notes(one: Comparison) -> list[str]:
    """Return notes that a reader needs about the pairs."""
    n, lines = len(one.seeds), []
    if n == 0:
        lines.append(f"{one.stream}: A and B share no seed, so there are no pairs.")
    elif n == 1:
        lines.append(f"Too few pairs: only seed {one.seeds[0]} is in both, and an interval needs at least two.")
    elif n < FEW:
        lines.append(f"Few pairs ({n}): the interval holds only if differences between seeds are normal.")
    if one.precisions[0] != one.precisions[1] or "/" in one.precisions[0]:
        lines.append(f"Precisions: A has {one.precisions[0]}, B {one.precisions[1]}.")
    lines += one.learned_less
    for side, seeds in zip("AB", one.unpaired, strict=True):
        if seeds:
            lines.append(f"Only in {side}, left out: {_listed(seeds)}.")
    return lines


def _listed(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
