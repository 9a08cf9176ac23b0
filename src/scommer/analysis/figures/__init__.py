"""The paper's figures and a few more, each a pure function of records: no GPU, no weights."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from scommer.analysis.figures import codes, history, matrices, recency, scores, stability, style, tasks
from scommer.analysis.groups import Group, groups
from scommer.errors import UsageError, check_name
from scommer.runs.record import Record

FIGURES: dict[str, Callable[[Sequence[Group]], Figure]] = {
    "scores": scores.figure,
    "tasks": tasks.figure,
    "matrices": matrices.figure,
    "codes": codes.figure,
    "recency": recency.figure,
    "stability": stability.figure,
    "history": history.figure,
}
NEEDS: dict[str, Callable[[Group], None]] = {  # an error where a figure cannot show a set of runs
    "tasks": tasks.check,
    "codes": codes.check,
    "recency": recency.check,
    "stability": stability.check,
    "history": history.check,
}
MANY = 12  # sets: in all figures but scores, more can hardly be told apart
ENDINGS: dict[str, dict[str, None]] = {  # what to leave out, so that equal records give equal files
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}

HASHED = re.compile(rb'(?<=[#"])[A-Za-z]\w*?[0-9a-f]{10}(?=["\)])')  # a name of a part, whole


def check(name: str, path: Path) -> None:
    """Whether there is such a figure and such a kind of file."""
    check_name("figure", name, FIGURES)
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"cannot write '{path}': give a name that ends in {', '.join(ENDINGS)}")


def draw(name: str, records: Sequence[Record]) -> Figure:
    """A figure by its name, of those runs that it can show."""
    check(name, Path(f"{name}.png"))
    sets = groups(records)
    able = [g for g in sets if not why_not(name, g)]
    if not able:
        raise UsageError(why_not(name, sets[0]))
    return draw_groups(name, able)


def left_out(name: str, records: Sequence[Record]) -> list[str]:
    """The runs that a figure does not show, and why."""
    return [f"{g.label}: {why}" for g in groups(records) if (why := why_not(name, g))]


def why_not(name: str, group: Group) -> str:
    """Why a figure cannot show a set of runs; nothing where it can."""
    try:
        NEEDS.get(name, bool)(group)
    except UsageError as e:
        return str(e)
    return ""


def draw_groups(name: str, sets: Sequence[Group]) -> Figure:
    """A figure of runs that are already in groups and that it can show, under the labels that those have."""
    with matplotlib.rc_context(style.RC):
        return FIGURES[name]([replace(g, label=style.plain(g.label)) for g in sets])


def as_svg(figure: Figure, transparent: bool = True) -> bytes:
    """A figure for a page, without a ground of its own.

    Matplotlib names parts by a hash of exact positions, whose last bits depend on where the layout's solver lies in
    memory; so they are named anew, by number.
    """
    out = BytesIO()
    with matplotlib.rc_context(style.RC):
        figure.savefig(out, format="svg", dpi=250, metadata=ENDINGS[".svg"], transparent=transparent)
    numbers: dict[bytes, bytes] = {}
    return HASHED.sub(lambda m: numbers.setdefault(m[0], b"n%d" % (len(numbers) + 1)), out.getvalue())


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG, SVG or PDF, by the ending of the name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".svg":
            path.write_bytes(as_svg(figure, transparent=False))
            return
        with matplotlib.rc_context(style.RC):
            figure.savefig(path, dpi=250, metadata=ENDINGS[path.suffix.lower()])
    except OSError as e:
        raise UsageError(f"cannot write '{path}': {e.strerror or e}") from None
