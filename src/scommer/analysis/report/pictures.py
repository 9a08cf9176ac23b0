"""The figures of a report, as images inside the page."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scommer.analysis import figures
from scommer.analysis.figures import FIGURES, style
from scommer.analysis.groups import Group
from scommer.analysis.selection import changes

SINGLE = 4  # figures of single runs on a page, which are large: a page of many runs should fit into an e-mail
MOST_SVG = 60_000  # bytes: a figure of many lines is smaller as an image of pixels


@dataclass(frozen=True)
class Picture:
    """A figure as a data URI, with its caption and alternative text."""

    name: str
    caption: str
    alt: str
    source: str
    wide: bool


def pictures(groups: Sequence[Group], chosen: Sequence[Group], streams: int = 1) -> tuple[list[Picture], list[str]]:
    """Return the figures of one stream, and what they do not show and why.

    Figures that stay readable show all groups, the others the `chosen` ones. `streams` share the room of a page.
    """
    single = max(1, SINGLE // streams)
    made, missing = [], []
    for name, kind in FIGURES.items():
        candidates = groups if kind.any_number else chosen
        if kind.any_number and len(groups) == 1:
            continue  # a single row says no more than the summary
        if kind.one_run:
            candidates = [replace(g, records=g.records[:1]) for g in candidates]
        reasons = [(g, figures.why_not(name, g)) for g in candidates]
        missing += [f"{name}, {g.label}: {why}" for g, why in reasons if why]
        able = [g for g, why in reasons if not why]
        if kind.one_run:
            are = "is" if single == 1 else "are"
            missing += [f"{name}, {g.label}: left out, only the first {single} {are} drawn" for g in able[single:]]
            made += [_single(name, g, several=len(groups) > 1) for g in able[:single]]
        elif able:
            made.append(_picture(name, able))
    return made, missing


def choose(groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups to draw: all; if too many, those that equal their preset; if fewer than two do, the first."""
    if len(groups) <= figures.MANY:
        return groups
    unchanged = [g for g in groups if not changes(g.records[0])]
    return (unchanged if len(unchanged) > 1 else groups)[: figures.MANY]


def _single(name: str, group: Group, several: bool) -> Picture:
    seed = f"seed {group.records[0].experiment.seed}"
    return _picture(name, [group], f" ({group.label}, {seed})" if several else f" ({seed})")


def _picture(name: str, drawn: Sequence[Group], of: str = "") -> Picture:
    figure, title = figures.draw_groups(name, drawn), FIGURES[name].title
    kind, content = "svg+xml", figures.as_svg(figure)
    if len(content) > MOST_SVG:
        kind, content = "png", figures.as_small_png(figure)
    source = f"data:image/{kind};base64,{b64encode(content).decode()}"
    alt = f"{title}. Shown: {'; '.join(g.label for g in drawn)}."
    return Picture(name, f"{title}{of}.", alt, source, wide=figure.get_figwidth() > 1.3 * style.COLUMN)
