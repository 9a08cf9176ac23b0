"""The option `--plugin`, which every command has: scripts that register methods, networks, streams and presets."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from scommer.files import expand_user
from scommer.plugins import load_plugin

PluginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", metavar="FILE.py", help="Script that registers methods, networks or streams; may be repeated."
    ),
]


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the option `--plugin`: the files are loaded before it runs."""

    @wraps(command)
    def call(plugin: list[Path] | None = None, **arguments: Any) -> None:
        for path in plugin or ():
            load_plugin(expand_user(path))
        command(**arguments)

    option = Parameter("plugin", Parameter.KEYWORD_ONLY, default=None, annotation=PluginOption)
    own = signature(command)
    call.__signature__ = own.replace(parameters=[*own.parameters.values(), option])  # type: ignore[attr-defined]
    call.__annotations__ = {**command.__annotations__, "plugin": PluginOption}
    return call
