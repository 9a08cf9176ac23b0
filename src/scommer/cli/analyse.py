"""The commands that analyse finished runs: figure, compare and report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from scommer.cli.common import Command, console


class FigureCommand(Command):
    """A command whose help lists the registered figures; they are imported only for that help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Replace {figures} in the help with one line per figure."""
        self.help = (self.help or "").replace("{figures}", figure_list())
        super().format_help(ctx, formatter)


def figure_list() -> str:
    """Return one line of Markdown per registered figure."""
    from scommer.analysis.figures import FIGURES

    return "\n".join(f"* {name}: {kind.title[0].lower()}{kind.title[1:]}." for name, kind in FIGURES.items())


def figure(
    name: Annotated[str, typer.Argument(help="One of the figures above.", show_default=False)],
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs on one stream: folders or quoted patterns.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .png, .svg or .pdf file; missing folders are created (default: NAME.png)."),
    ] = None,
) -> None:
    """Draw a figure from finished runs. Runs that differ only in their seed are averaged.

    {figures}

    Conditions select runs, as in runs@buffer=200 or runs@preset: see `scommer compare --help`.
    """
    from scommer.analysis import figures
    from scommer.analysis.groups import group_runs
    from scommer.analysis.selection import load_records

    path = out or Path(f"{name}.png")
    figures.check(name, path)
    records = load_records(runs)
    figures.save(figures.draw(name, records), path)
    console.print(f"{name}: {path}", soft_wrap=True)
    if not figures.FIGURES[name].any_number and (n := len(group_runs(records))) > figures.MANY:
        console.print(f"{n} groups are hard to tell apart: select fewer, or draw figure scores", soft_wrap=True)
    for line in figures.left_out(name, records):
        console.print(f"left out, {line}", soft_wrap=True)
    _print_unfinished(runs)


def compare(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="Runs: a folder or a quoted pattern, with or without conditions.", show_default=False
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="Runs to compare them with.", show_default=False)],
) -> None:
    """Compare runs A with runs B, paired by stream and seed.

    The interval is Student's 95 % interval of the mean paired difference. If it excludes 0, the row is bold and has a
    star.

    Conditions select the runs that meet all of them. They name a setting, or stream, method, buffer, seed, variant,
    validation or precision; @preset selects the runs that do not change their preset. For example:

    * scommer compare runs@method=scommer@buffer=200 runs@method=er@buffer=200
    * scommer compare runs@preset runs@r=0.4
    """
    from scommer.analysis import comparison
    from scommer.analysis.selection import load_records
    from scommer.analysis.table import as_rich

    ours, theirs = load_records([a]), load_records([b])
    for one in comparison.compare(ours, theirs):
        console.print(as_rich(comparison.comparison_table(one)))
        for note in comparison.notes(one):
            console.print(note, soft_wrap=True)
    for note in comparison.unpaired_streams(ours, theirs):
        console.print(note, soft_wrap=True)
    _print_unfinished([a, b])


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs, folders of runs, or quoted patterns.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write; missing folders are created.")] = Path(
        "report.html"
    ),
) -> None:
    """Write a report of finished runs as one HTML page that works offline.

    It shows results as mean ± standard deviation over seeds, settings and how they differ, every figure that the runs
    allow, and the commands that repeat the runs. Runs may be on several streams. Conditions select runs, as in
    runs@buffer=200 or runs@preset: see `scommer compare --help`.
    """
    from scommer.analysis import report as reports
    from scommer.analysis.selection import load_records

    reports.check(out)
    records = load_records(runs)
    page = reports.report(records)
    reports.write(page, out)
    console.print(f"report of {len(records)} run{'s' if len(records) > 1 else ''}: {out}", soft_wrap=True)
    _print_unfinished(runs)


def _print_unfinished(runs: Sequence[Path]) -> None:
    from scommer.analysis.selection import unfinished

    if folders := unfinished(runs):
        which = f"{folders[0].name} is" if len(folders) == 1 else f"{len(folders)} runs are"
        console.print(f"{which} not finished and left out: see scommer show", soft_wrap=True)
