"""Figures, each a pure function of records: the paper's and a few more.

To add a figure, write its file and give it a line in FIGURES.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from scommer.analysis.figures import codes, history, matrices, recency, scores, stability, style, tasks
from scommer.analysis.groups import Group, group_runs
from scommer.errors import UsageError, check_name
from scommer.files import write_output
from scommer.runs.record import Record


@dataclass(frozen=True)
class FigureKind:
    """How a figure is drawn, what it is called, and which runs it can show."""

    draw: Callable[[Sequence[Group]], Figure]
    title: str
    check: Callable[[Group], None] | None = None  # raises UsageError for a group that it cannot show
    one_run: bool = False  # it shows a single run
    any_number: bool = False  # it stays readable with more than MANY groups


FIGURES: dict[str, FigureKind] = {  # in the order of a report, where figures of a column's width come in pairs
    "scores": FigureKind(scores.figure, "Accuracy at the end", any_number=True),
    "tasks": FigureKind(tasks.figure, "Accuracy on each task after each task", tasks.check),
    "history": FigureKind(history.figure, "Training loss and accuracy over time", history.check),
    "recency": FigureKind(recency.figure, "How likely each task is to be predicted at the end", recency.check),
    "stability": FigureKind(
        stability.figure, "Accuracy on each task when it was learned, and at the end", stability.check
    ),
    "matrices": FigureKind(matrices.figure, "Accuracy on each task's test set (columns) after each task (rows)"),
    "codes": FigureKind(
        codes.figure,
        "Class codes of the last stage: activity on test images, P_s, and how far classes overlap",
        codes.check,
        one_run=True,
    ),
}
MANY = 12  # groups: with more, colours and markers are hard to tell apart
METADATA: dict[str, dict[str, None]] = {  # left out by file type, so that equal records give equal files
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
HASHED_ID = re.compile(rb'(?<=[#"])[A-Za-z]\w*?[0-9a-f]{10}(?=["\)])')


def check(name: str, path: Path) -> None:
    """Raise UsageError unless there is such a figure and such a file type."""
    check_name("figure", name, FIGURES)
    check_file(path)


def check_file(path: Path) -> None:
    """Raise UsageError unless figures can be written as this type of file."""
    if path.suffix.lower() not in METADATA:
        raise UsageError(f"cannot write '{path}': give a name that ends in {', '.join(METADATA)}")


def draw(name: str, records: Sequence[Record]) -> Figure:
    """Draw a figure of the runs that it can show."""
    check(name, Path(f"{name}.png"))
    groups = group_runs(records)
    able = [g for g in groups if not why_not(name, g)]
    if not able:
        raise UsageError(why_not(name, groups[0]))
    return draw_groups(name, able)


def left_out(name: str, records: Sequence[Record]) -> list[str]:
    """Return the labels of the runs that a figure cannot show, and why."""
    return [f"{g.label}: {why}" for g in group_runs(records) if (why := why_not(name, g))]


def why_not(name: str, group: Group) -> str:
    """Return why a figure cannot show a group, an empty string if it can."""
    check_runs = FIGURES[name].check
    try:
        if check_runs is not None:
            check_runs(group)
    except UsageError as e:
        return str(e)
    return ""


def draw_groups(name: str, groups: Sequence[Group]) -> Figure:
    """Draw a figure of groups that it can show, under their labels."""
    with style.styled():
        return FIGURES[name].draw([replace(g, label=style.plain(g.label)) for g in groups])


def as_svg(figure: Figure, transparent: bool = True) -> bytes:
    """Return a figure as SVG.

    Matplotlib derives ids from exact positions, whose last bits depend on memory addresses in the layout's solver.
    Numbering the ids instead makes equal figures equal files.
    """
    out = BytesIO()
    with style.styled():
        figure.savefig(out, format="svg", dpi=250, metadata=METADATA[".svg"], transparent=transparent)
    numbers: dict[bytes, bytes] = {}
    return HASHED_ID.sub(lambda m: numbers.setdefault(m[0], b"n%d" % (len(numbers) + 1)), out.getvalue())


def as_small_png(figure: Figure) -> bytes:
    """Return a figure as PNG with a palette of 64 colours, a third of the size of one without."""
    drawn, small = BytesIO(), BytesIO()
    with style.styled():
        figure.savefig(drawn, format="png", dpi=200, metadata=METADATA[".png"])
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the name."""
    kind = path.suffix.lower()
    if kind == ".svg":
        write_output(path, as_svg(figure, transparent=False))
        return
    out = BytesIO()
    with style.styled():
        figure.savefig(out, format=kind[1:], dpi=250, metadata=METADATA[kind])
    write_output(path, out.getvalue())
