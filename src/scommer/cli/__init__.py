"""The command line: thin. Each command looks things up, calls the package, and prints."""

import re
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from scommer import __version__
from scommer.cli import analyse, data, inspect, predict, train
from scommer.cli.common import Command, console
from scommer.cli.plugins import with_plugins
from scommer.errors import RunWarning, ScommerError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Neural networks that learn task after task without forgetting.

    Try `scommer demo` first: it learns ten digits two at a time, with and without forgetting, in about a minute.""",
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: where they are, and getting them.")
app.add_typer(data_app, name="data")
COMMANDS: tuple[Callable[..., None], ...] = (
    train.run, predict.predict, train.demo, train.reproduce, inspect.show, inspect.table,
    inspect.results, analyse.figure, analyse.compare, analyse.report, inspect.bench, inspect.list_,
)  # fmt: skip
DATA_COMMANDS: tuple[Callable[..., None], ...] = (data.get, data.where)
for group, commands in ((app, COMMANDS), (data_app, DATA_COMMANDS)):
    for command in commands:
        name = command.__name__.rstrip("_")  # `list_`, because `list` is Python's
        kind = analyse.FigureCommand if command is analyse.figure else Command
        group.command(name, cls=kind)(with_plugins(command))


def main() -> None:
    """Runs a command; what a user can mend is one line on stderr, never a traceback."""
    warnings.showwarning = _warn
    try:
        app()
    except ScommerError as e:
        _complain(str(e))
        sys.exit(e.exit_code)
    except RuntimeError as e:  # torch has no error of its own for it on a CPU
        if not re.search("out of memory|allocate memory", str(e)):
            raise
        _complain("out of memory: a smaller network, batch or buffer needs less, and so do fewer seeds at once")
        sys.exit(1)
    except KeyboardInterrupt:
        _complain("stopped")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)


def _complain(message: str) -> None:
    Console(stderr=True, highlight=False).print(f"scommer: {message}", markup=False, soft_wrap=True)


_show = warnings.showwarning


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Our own warnings as one line, others as Python shows them."""
    if issubclass(category, RunWarning):
        _complain(f"warning: {message}")
    else:
        _show(message, category, *where, **more)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"scommer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...
