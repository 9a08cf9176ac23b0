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
from scommer.cli.common import console
from scommer.cli.plugins import with_plugins
from scommer.errors import RunWarning, ScommerError, UsageError

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
        group.command(command.__name__.rstrip("_"))(with_plugins(command))  # list_ is Python's list otherwise


LISTS = ("--seeds", "--cohorts")
LISTED = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def main() -> None:
    """Runs a command; what a user can mend is one line on stderr, never a traceback."""
    warnings.showwarning = _warn
    try:
        app(_spread(sys.argv[1:]))
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


def _spread(arguments: list[str]) -> list[str]:
    """`--seeds 0 1 2`, or 0,1,2 or 0-2, as `--seeds 0 --seeds 1 --seeds 2`, which the parser knows; `--cohorts` too."""
    spread: list[str] = []
    words = [part for word in arguments for part in (word.split("=") if word.startswith(LISTS) else [word])]
    while words:
        word = words.pop(0)
        spread.append(word)
        if word in LISTS and words:
            given = [n for n in words.pop(0).split(",") if n]
            while words and LISTED.fullmatch(words[0]):
                given += words.pop(0).split(",")
            numbers = [n for some in given for n in _range(some)]
            spread += [part for n in numbers for part in (n, word)][:-1]
    return spread


def _range(numbers: str) -> list[str]:
    """0-2 as 0, 1 and 2; anything else as it is."""
    ends = re.fullmatch(r"(\d+)-(\d+)", numbers)
    if ends and int(ends[1]) > int(ends[2]):
        raise UsageError(f"'{numbers}' ends before it begins: write {ends[2]}-{ends[1]}")
    return [str(n) for n in range(int(ends[1]), int(ends[2]) + 1)] if ends else [numbers]


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
