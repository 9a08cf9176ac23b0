"""The command line. Each command is thin: it looks things up, calls the package and prints."""

import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from scommer import __version__
from scommer.cli import analyse, bench, data, inspect, learn, paper, predict, sweep, train
from scommer.cli.common import Command, Commands, begin_command, console, print_error
from scommer.cli.plugins import with_plugins
from scommer.errors import RunWarning, ScommerError

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Neural networks that learn task after task without forgetting.

    Try `scommer demo` first: it learns ten digits, two at a time, with and without forgetting, in about a minute.""",
    epilog="Exit code 1: a run failed. Exit code 2: invalid input. Exit code 130: stopped, everything is saved.",
)
data_app = typer.Typer(cls=Commands, no_args_is_help=True, help="Download data sets, and show where they are.")
app.add_typer(data_app, name="data")
COMMANDS: tuple[Callable[..., None], ...] = (
    train.run, sweep.sweep, learn.learn, predict.predict, learn.forget, learn.export, train.demo, paper.reproduce,
    inspect.show, paper.table, paper.results, analyse.figure, analyse.compare, analyse.report, bench.bench,
    inspect.list_,
)  # fmt: skip
DATA_COMMANDS: tuple[Callable[..., None], ...] = (data.get, data.where)
for group, commands in ((app, COMMANDS), (data_app, DATA_COMMANDS)):
    for command in commands:
        name = command.__name__.rstrip("_")  # `list_`, because `list` is Python's
        kind = analyse.FigureCommand if command is analyse.figure else Command
        group.command(name, cls=kind)(with_plugins(command))


def main() -> None:
    """Run a command. An error is one line on stderr and an exit code, never a traceback."""
    begin_command()
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not have a letter
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can be reported
    except ScommerError as e:
        sys.exit(_fail(str(e), e.exit_code))
    except (MemoryError, RuntimeError) as e:  # on a CPU, torch has no class of its own for this error
        if isinstance(e, RuntimeError) and not re.search("out of memory|allocate memory", str(e)):
            raise
        sys.exit(_fail("out of memory: use smaller images, network, batch or buffer, or fewer seeds at once", 1))
    except KeyboardInterrupt:
        sys.exit(_fail("stopped", 130))
    except SystemExit as e:
        if e.code == 130:  # Typer's, for Ctrl-C outside of runs
            _fail("stopped", 130)
        raise
    except BrokenPipeError:
        _close_stdout()
        sys.exit(1)
    except OSError as e:
        _close_stdout()
        what = f" ({e.filename})" if e.filename else ""
        sys.exit(_fail(f"{e.strerror or e}{what}: check the path, its permissions and the space on its disk", 1))


def _fail(message: str, code: int) -> int:
    with suppress(OSError):  # stderr, too, may be full or closed
        print_error(message)
    return code


def _close_stdout() -> None:
    """Leave Python nothing to flush when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_python_showwarning = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show our own warnings as one line, others as Python does."""
    if issubclass(category, RunWarning):
        print_error(f"warning: {message}")
    else:
        _python_showwarning(message, category, *where, **more)


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
