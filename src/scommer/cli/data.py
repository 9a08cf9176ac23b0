"""The commands for data sets: get and where."""

from typing import Annotated

import typer

from scommer.cli.common import DataOption, console


def get(
    name: Annotated[str, typer.Argument(help="cifar10 or cifar100.", show_default=False)],
    data: DataOption = None,
) -> None:
    """Download a data set, check it and unpack it. An interrupted download is resumed."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from scommer.data import data_root
    from scommer.data.fetch import SOURCES, fetch
    from scommer.errors import lookup

    source = lookup("data set", name, SOURCES)
    bar = Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=console)
    with bar:
        row = bar.add_task(name, total=None)
        folder = fetch(
            source,
            data_root(data),
            progress=lambda done, total: bar.update(row, completed=done, total=total),
        )
    console.print(f"{name}: complete in {folder}", soft_wrap=True)


def where(data: DataOption = None) -> None:
    """Show the data folder and what is in it."""
    from scommer.data import data_root
    from scommer.data.fetch import SOURCES

    root = data_root(data)
    console.print(f"data folder: {root}", soft_wrap=True)
    for name, source in SOURCES.items():
        present = (root / source.folder).is_dir()
        console.print(f"{name}: {'present' if present else f'missing (scommer data get {name})'}")
