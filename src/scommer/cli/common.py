"""Shared by all commands: the console, errors, a few options, and lists of numbers."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from scommer.errors import ScommerError, UsageError, check_name, printable
from scommer.sweeps.ranges import numbers


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
MinutesOption = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        help="Save and stop after this time, counted from the start of the command; run the same command to resume.",
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder for the runs, created if missing; each run gets its own folder in it.")
]

# --- time

_started = time.monotonic()  # this command


def begin_command() -> None:
    """Note the time at which a command begins."""
    global _started
    _started = time.monotonic()


def minutes_left(minutes: float | None) -> float | None:
    """Return what is left of a time limit, which counts from the start of the command; at least a moment."""
    if minutes is None or not minutes > 0:
        return minutes  # what is invalid is refused elsewhere
    return max(minutes - (time.monotonic() - _started) / 60, 1e-9)


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


# --- lists: of numbers, 0 1 2, 0,1,2 or 0-2, and of names, er sgd or er,sgd

NUMBERS = "N..."  # metavar of such a list in --help, by which a command recognises the option
NAMES = "NAME..."
LISTS = {NUMBERS: re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*"), NAMES: re.compile(r"[^-].*")}  # what belongs to a list


def numbers_option(name: str, help: str, *short: str) -> Any:
    """Return an option that takes whole numbers; it may be repeated. Its annotation is `list[int] | None`."""
    return typer.Option(name, *short, help=help, metavar=NUMBERS, parser=numbers, callback=_flatten, show_default=False)


def names_option(name: str, help: str, *short: str) -> Any:
    """Return an option that takes names; it may be repeated. Its annotation is `list[str] | None`."""
    return typer.Option(name, *short, help=help, metavar=NAMES, parser=_names, callback=_flatten, show_default=False)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _flatten(lists: list[list[Any]] | None) -> list[Any]:
    """Return the values of an option that may have been repeated as one list."""
    return [value for values in lists or () for value in values]


class Command(TyperCommand):
    """A command whose lists may be written with spaces: `--seeds 0 1 2`, `--method er sgd`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name: LISTS[o.metavar] for o in self.params if o.metavar in LISTS for name in o.opts}
        words = join_lists(args, lists)
        try:
            self._refuse_repeated(ctx, words)
            return super().parse_args(ctx, list(words))
        except PARSER_ERROR as e:
            raise UsageError(_in_our_words(e, words, ctx.command_path)) from None

    def _refuse_repeated(self, ctx: Any, words: Sequence[str]) -> None:
        """Refuse an option that takes one value and is given several: the parser would ignore all but the last."""
        _, _, order = self.make_parser(ctx).parse_args(list(words))
        for option, times in Counter(order).items():
            if times > 1 and not option.multiple and not getattr(option, "is_flag", True):
                several = " (`scommer sweep` takes several)" if option.name in ("method", "buffer") else ""
                raise UsageError(f"{option.opts[0]} is given {times} times: give it once{several}")


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
    message = " ".join(str(error.format_message()).rstrip(".").split()).replace("Value error, ", "")
    message = message[:1].lower() + message[1:]
    expected = re.search("a valid (integer|float|number)", message)
    if isinstance(error, typer.BadParameter) and error.param and expected:
        options, given = error.param.opts, ""
        for word, following in zip(words, [*words[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            given = (value if equals else following) if name in options else given
        return f"{options[0]} {given} is invalid: expected a {'whole ' * (expected[1] == 'integer')}number"
    return f"{message}: see {command} --help"


def join_lists(words: Sequence[str], options: Mapping[str, re.Pattern[str]]) -> list[str]:
    """Return the words with the values that follow one of these options as one: `--seeds 0,1,2`."""
    joined: list[str] = []
    listed: re.Pattern[str] | None = None  # what continues the list that a word is in
    first: re.Pattern[str] | None = None  # of the list whose first value comes next
    for i, word in enumerate(words):
        if listed and listed.fullmatch(word):
            joined[-1] += f",{word}"
            continue
        if word == "--":  # only arguments follow
            return [*joined, *words[i:]]
        name, equals, _ = word.partition("=")
        listed = first or (options.get(name) if equals else None)
        first = options.get(word)
        joined.append(word)
    return joined
