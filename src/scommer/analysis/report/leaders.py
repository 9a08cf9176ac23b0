"""Who is ahead: only sets of runs that had the same buffer, epochs and number of seeds are compared."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from scommer.analysis.comparison import Difference
from scommer.analysis.groups import Group
from scommer.analysis.selection import settings_of
from scommer.analysis.summary import scores
from scommer.analysis.table import spread


class Terms(NamedTuple):
    """The terms that sets of runs must share to be compared."""

    buffer: int | None
    epochs: int | None
    validation: float
    seeds: int

    def __str__(self) -> str:
        parts = [f"a buffer of {self.buffer}" if self.buffer else "no buffer"]
        parts += [f"{self.epochs} epoch{'s' * (self.epochs > 1)}"] if self.epochs else []
        parts += [f"{self.validation:g} of the training images held out"] if self.validation else []
        return f"with {', '.join(parts)} and {self.seeds} seed{'s' * (self.seeds > 1)}"


def epochs_of(group: Group) -> int | None:
    """Return the number of epochs of each task."""
    found = settings_of(group.records[0]).get("epochs")
    return found if isinstance(found, int) else None


def terms(group: Group) -> Terms:
    """Return the terms of a set of runs."""
    e = group.records[0].experiment
    return Terms(e.buffer, epochs_of(group), e.validation, len(group.records))


def leaders(stream: str, groups: Sequence[Group]) -> list[str]:
    """Return a sentence for the two best of the sets with equal terms that learned task after task.

    Single seeds are ranked only where no sets of several seeds are.
    """
    equal: dict[Terms, list[Group]] = {}
    for g in groups:
        if not g.at_once:
            equal.setdefault(terms(g), []).append(g)
    several = {shared: found for shared, found in equal.items() if len(found) > 1}
    ranked = {shared[:-1] for shared in several if shared.seeds > 1}
    return [
        _sentence(stream, shared, found)
        for shared, found in several.items()
        if shared.seeds > 1 or shared[:-1] not in ranked
    ]


def _sentence(stream: str, shared: Terms, groups: Sequence[Group]) -> str:
    ends = [scores(g, g.inference, "class_il", "accuracy") for g in groups]
    (best, a), (second, b), *_ = sorted(zip(groups, ends, strict=True), key=lambda pair: -fmean(pair[1]))
    text = f"On {stream} {shared}, {best.label} ({spread(a).text} %) has the highest mean Class-IL accuracy"
    text += f" of {len(groups)} sets, ahead of {second.label} ({spread(b).text} %)"
    if shared.seeds == 1:
        return f"{text}; with one seed each, the order may be chance."
    if [r.experiment.seed for r in best.records] != [r.experiment.seed for r in second.records]:
        return f"{text}."
    d = Difference("", tuple(a), tuple(b))
    clear = "" if d.clear else ", which includes 0"
    return f"{text} by {d.mean:.2f} points (95 % interval: {d.low:.2f} to {d.high:.2f}{clear})."
