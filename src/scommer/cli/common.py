"""Shared by all commands: the console, errors, a few options, and lists of numbers."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from scommer.errors import ScommerError, UsageError, check_name, printable


class PrintableConsole(Console):
    """A console that strips control characters from lines and tables."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


console = PrintableConsole(highlight=False, markup=False)  # a name may have brackets
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder (default: $SCOMMER_DATA, or the user's cache)."),
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:1 (default: a GPU if there is one).")
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision", help="Precision of convolutions: bf16, tf32 or fp32 (default: bf16 on a GPU, fp32 on a CPU)."
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder for the runs, created if missing; each run gets its own folder in it.")
]

# --- errors


def print_error(message: str) -> None:
    """Print an error or a warning as one line on stderr."""
    PrintableConsole(stderr=True, highlight=False).print(f"scommer: {message}", markup=False, soft_wrap=True)


class Stopped(ScommerError):
    """A run was stopped by a signal."""

    exit_code = 130


@contextmanager
def stoppable() -> Iterator[None]:
    """Show the message of a stopped run, which the parser would hide."""
    from scommer.runs.runner import Interrupted

    try:
        yield
    except Interrupted as e:
        raise Stopped(str(e)) from None


# --- lists of numbers: 0 1 2, 0,1,2 or 0-2

NUMBERS = "N..."  # metavar of such a list in --help, by which a command recognises the option
MOST = 10_000  # numbers in a range
HINT = "write 0 1 2, 0,1,2 or 0-2"
LISTED = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def numbers_option(name: str, help: str) -> Any:
    """Return an option that takes whole numbers; it may be repeated. Its annotation is `list[int] | None`."""
    return typer.Option(name, help=help, metavar=NUMBERS, parser=numbers, callback=_flatten, show_default=False)


def numbers(text: str) -> list[int]:
    """Read `0,1,2`, `0-2` or both: `0-2,5`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        ends = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", part)  # a seed has 63 bits
        if not ends:
            raise UsageError(f"'{part}' is not a list of whole numbers: {HINT}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if first > last:
            raise UsageError(f"'{part}' ends before it begins: write {last}-{first}")
        if last - first >= MOST:
            raise UsageError(f"'{part}' has {last - first + 1:,} numbers: give at most {MOST:,}")
        found += range(first, last + 1)
    if not found:
        raise UsageError(f"'{text}' has no numbers: {HINT}")
    return found


def _flatten(lists: list[list[int]] | None) -> list[int]:
    """Return the numbers of an option that may have been repeated as one list."""
    return [n for numbers in lists or () for n in numbers]


class Command(TyperCommand):
    """A command whose lists of numbers may be written with spaces: `--seeds 0 1 2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name for option in self.params if option.metavar == NUMBERS for name in option.opts}
        words = join_numbers(args, lists)
        try:
            return super().parse_args(ctx, list(words))
        except PARSER_ERROR as e:
            raise UsageError(_in_our_words(e, words, ctx.command_path)) from None


class Commands(TyperGroup):
    """A group of commands that suggests the nearest one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except PARSER_ERROR as e:
            if not words:
                raise  # it prints the help
            raise UsageError(_in_our_words(e, words, ctx.command_path)) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not args[0].startswith("-"):
            check_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


PARSER_ERROR: Any = typer.BadParameter.__base__  # click's UsageError, which some versions of typer bundle


def _in_our_words(error: Any, words: Sequence[str], command: str) -> str:
    """Return the parser's message on one line that says what is allowed."""
    message = " ".join(str(error.format_message()).rstrip(".").split())
    message = message[:1].lower() + message[1:]
    expected = re.search("a valid (integer|float|number)", message)
    if isinstance(error, typer.BadParameter) and error.param and expected:
        options, given = error.param.opts, ""
        for word, following in zip(words, [*words[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            given = (value if equals else following) if name in options else given
        return f"{options[0]} {given} is invalid: expected a {'whole ' * (expected[1] == 'integer')}number"
    return f"{message}: see {command} --help"


def join_numbers(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Return the words with the numbers that follow one of these options as one value: `--seeds 0,1,2`."""
    joined: list[str] = []
    value_next = is_list = False
    for i, word in enumerate(words):
        if is_list and LISTED.fullmatch(word):
            joined[-1] += f",{word}"
            continue
        if word == "--":  # only arguments follow
            return [*joined, *words[i:]]
        is_list = value_next or (word.partition("=")[0] in options and "=" in word)
        value_next = word in options
        joined.append(word)
    return joined
