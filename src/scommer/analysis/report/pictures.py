"""Every figure that the runs allow, as images that lie in the page."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from scommer.analysis import figures
from scommer.analysis.figures import style
from scommer.analysis.groups import Group
from scommer.analysis.selection import changes

TITLES = {  # in the order of the page: those of a column's width come in pairs
    "scores": "Accuracy at the end",
    "tasks": "Accuracy on each task after each task",
    "history": "Training loss and accuracy over time",
    "recency": "How likely each task is predicted at the end",
    "stability": "Accuracy on each task when it was learned, and at the end",
    "matrices": "Accuracy on each task's test set (columns) after each task (rows)",
    "codes": "Class codes of the last stage: activity on test images, P_s, and how far classes overlap",
}
CODES = 4  # of the large figures of single runs, so that a page of many runs can still be sent by mail


@dataclass(frozen=True)
class Picture:
    """A figure as a data URI, and in words."""

    name: str
    caption: str
    alt: str
    source: str
    wide: bool


def pictures(groups: Sequence[Group], chosen: Sequence[Group]) -> tuple[list[Picture], list[str]]:
    """The figures of one stream, of all sets or of those chosen, and what is in none of them and why."""
    made, missing = [], []
    of = {"scores": groups if len(groups) > 1 else [], "codes": [_first(g) for g in chosen]}
    for name in TITLES:
        found = [(g, figures.why_not(name, g)) for g in of.get(name, chosen)]
        missing += [f"{name}, {g.label}: {why}" for g, why in found if why]
        able = [g for g, why in found if not why]
        if name == "codes":
            missing += [f"{name}, {g.label}: left out, as there are {CODES} already" for g in able[CODES:]]
            able = able[:CODES]
        for drawn in [[g] for g in able] if name == "codes" else [able] if able else []:
            made.append(_picture(name, drawn, several=len(groups) > 1))
    return made, missing


def choose(groups: Sequence[Group]) -> Sequence[Group]:
    """All sets or, of too many, those with nothing changed from their preset; where only one is, the first.

    That of scores has them all.
    """
    if len(groups) <= figures.MANY:
        return groups
    unchanged = [g for g in groups if not changes(g.records[0])]
    return (unchanged if len(unchanged) > 1 else groups)[: figures.MANY]


def _first(group: Group) -> Group:
    """Its first seed alone: units of two networks do not correspond."""
    return Group(group.label, group.records[:1])


def _picture(name: str, drawn: Sequence[Group], several: bool) -> Picture:
    figure = figures.draw_groups(name, drawn)
    source = f"data:image/svg+xml;base64,{b64encode(figures.as_svg(figure)).decode()}"
    caption, labels = TITLES[name], "; ".join(g.label for g in drawn)
    if name == "codes":
        which = f"seed {drawn[0].records[0].experiment.seed}"
        caption += f" ({labels}, {which})" if several else f" ({which})"
    alt = f"{TITLES[name]}. Of: {labels}."
    return Picture(name, f"{caption}.", alt, source, wide=figure.get_figwidth() > 1.3 * style.COLUMN)
