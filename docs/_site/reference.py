"""The reference pages, as Markdown made from the code."""

import json
from dataclasses import fields
from inspect import cleandoc
from typing import Any

from typer.main import get_command

import scommer
from scommer.analysis.table import Table, as_markdown, row, text_columns
from scommer.cli import app
from scommer.cli.analyse import figure_list
from scommer.methods import METHODS
from scommer.methods.training import Training
from scommer.nn.networks import NETWORKS
from scommer.runs.meanings import meanings
from scommer.runs.settings import describe, setting_types, written

# Besides the names in `scommer`, by module: what extensions are built from.
EXTENDING = {
    "scommer.methods": ["Method", "Memories", "MemoryFactory", "Batch", "Outcome", "View", "TaskImages"],
    "scommer.methods.training": ["Training"],
    "scommer.memory": ["WorkingMemory", "EpisodicMemory", "LongTermMemory"],
    "scommer.nn.networks": ["Architecture", "NetworkOutput"],
    "scommer.nn.layers": ["BatchNorm", "Conv", "Linear"],
    "scommer.analysis.figures": ["FigureKind", "draw", "save"],
    "scommer.analysis.measures": ["Measure"],
    "scommer.runs.presets": ["register"],
    "scommer.streams": ["load"],
}


def settings() -> str:
    """Return a table of settings for training, for each method, and the networks."""
    parts = ["## Training\n\nThe settings that every method has.\n", _settings_table(Training)]
    for name, method in METHODS.items():
        parts.append(f"## Method `{name}`\n\n{cleandoc(method.__doc__ or '')}\n")
        parts.append(_settings_table(method) if fields(method) else "It has no settings of its own.\n")
    sizes = tuple(row(f"`{n}`", *(str(getattr(a, k)) for k in SIZES)) for n, a in NETWORKS.items())
    parts.append("## Networks\n\nThe values of `network`, and their default sizes.\n")
    parts.append(as_markdown(Table("", text_columns("network", *SIZES), sizes)))
    return "\n".join(parts)


SIZES = ("width", "depth", "stages")


def _settings_table(kind: type) -> str:
    types, known = setting_types(kind), meanings(kind)
    rows = []
    for f in fields(kind):  # type: ignore[arg-type]
        default = json.loads(json.dumps(f.default))  # tuples as lists
        name = f"`{f.name}` {known[f.name].symbol}"
        rows.append(row(name, known[f.name].sentence, f"`{written(default)}`", describe(types[f.name])))
    return as_markdown(Table("", text_columns("setting", "meaning", "default", "values"), tuple(rows)))


def commands() -> str:
    """Return a section for each command: its help, arguments and options."""
    root: Any = get_command(app)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {k}": c for k, c in inner.items()} if inner else {name: command}
    return "\n".join(_command(name, command) for name, command in found.items())


def _command(name: str, command: Any) -> str:
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    usage = " ".join(["scommer", name, *(_argument(p) for p in arguments), "[OPTIONS]"])
    text = cleandoc(command.help or "").replace("{figures}", figure_list())
    rows = [row(f"`{_argument(p)}`", _help(p), "") for p in arguments]
    rows += [
        row(", ".join(f"`{o}`" for o in p.opts), _help(p), _default(p)) for p in shown if p.param_type_name == "option"
    ]
    table = as_markdown(Table("", text_columns("argument or option", "meaning", "default"), tuple(rows)))
    return f"## `scommer {name}`\n\n```console\n{usage}\n```\n\n{text}\n\n{table}"


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _help(parameter: Any) -> str:
    return " ".join((parameter.help or "").split())


def _default(option: Any) -> str:
    value = option.default
    return "" if value is None or value is False or callable(value) else f"`{value}`"


def api() -> str:
    """Return directives of autodoc, for the public names and for those that extensions use."""
    public = [f"scommer.{name}" for name in scommer.__all__]
    inner = [f"{module}.{name}" for module, names in EXTENDING.items() for name in names]
    parts = ["## From `scommer`\n", *map(_entry, public), "## To extend it\n", *map(_entry, inner)]
    return "\n".join(parts)


def _entry(path: str) -> str:
    module, name = path.rsplit(".", 1)
    made = getattr(__import__(module, fromlist=[name]), name)
    kind, members = ("class", "   :members:\n") if isinstance(made, type) else ("function", "")
    return f"### `{name}`\n\n```{{eval-rst}}\n.. auto{kind}:: {path}\n{members}```\n"
