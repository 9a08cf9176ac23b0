"""What the commands share: the console and a few options."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console(highlight=False, markup=False)  # a name may have brackets
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets (default: $SCOMMER_DATA, then the user's cache)."),
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:1 (default: a GPU where there is one).")
]
PrecisionOption = Annotated[
    str | None,
    typer.Option("--precision", help="Of convolutions: bf16, tf32 or fp32 (default: bf16 on a GPU, fp32 on a CPU)."),
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder in which each run gets a folder of its own.")]
