"""The paper's figures and a few more, each a pure function of records: no GPU, no weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from scommer.analysis.figures import codes, history, matrices, recency, stability, style, tasks
from scommer.analysis.groups import Group, groups
from scommer.errors import UsageError, unknown
from scommer.record import Record

FIGURES: dict[str, Callable[[Sequence[Group]], Figure]] = {
    "tasks": tasks.figure,
    "matrices": matrices.figure,
    "codes": codes.figure,
    "recency": recency.figure,
    "stability": stability.figure,
    "history": history.figure,
}
ENDINGS: dict[str, dict[str, None]] = {  # what to leave out, so that equal records give equal files
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def check(name: str, path: Path) -> None:
    """Whether there is such a figure and such a kind of file."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"cannot write '{path}': give a name that ends in {', '.join(ENDINGS)}")


def draw(name: str, records: Sequence[Record]) -> Figure:
    """A figure by its name."""
    check(name, Path(f"{name}.png"))
    return draw_groups(name, groups(records))


def draw_groups(name: str, sets: Sequence[Group]) -> Figure:
    """A figure of runs that are already in groups, under the labels that those have."""
    with matplotlib.rc_context(style.RC):
        return FIGURES[name]([replace(g, label=style.plain(g.label)) for g in sets])


def as_svg(figure: Figure) -> bytes:
    """A figure without a ground of its own, for a page that has one."""
    out = BytesIO()
    with matplotlib.rc_context(style.RC):
        figure.savefig(out, format="svg", dpi=250, metadata=ENDINGS[".svg"], transparent=True)
    return out.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG, SVG or PDF, by the ending of the name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(style.RC):
            figure.savefig(path, dpi=250, metadata=ENDINGS[path.suffix.lower()])
    except OSError as e:
        raise UsageError(f"cannot write '{path}': {e.strerror or e}") from None
