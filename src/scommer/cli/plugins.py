"""The option `--plugin`, which every command has: scripts that register methods, networks, streams and presets."""

import sys
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from inspect import Parameter, signature
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Annotated, Any

import typer

from scommer.errors import UsageError
from scommer.files import expand_user

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


def load_plugin(path: Path) -> None:
    """Run a script that registers things. It may import modules from its own folder."""
    if not path.is_file():
        raise UsageError(f"there is no plugin {path}: give the path of a Python file")
    if path.suffix != ".py":
        raise UsageError(f"the plugin {path} is not Python: give a file that ends in .py")
    file = str(path.resolve())
    name = f"scommer_plugin_{path.stem}_{sha256(file.encode()).hexdigest()[:8]}"
    module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up
    module.__file__ = file
    if (folder := str(Path(file).parent)) not in sys.path:
        sys.path.append(folder)  # last, so that it hides nothing
    try:
        exec(compile(path.read_bytes(), file, "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as e:
        del sys.modules[name]
        reason = e.msg if isinstance(e, SyntaxError) else (str(e).splitlines() or [""])[0]
        raise UsageError(f"plugin {path}, line {_line(e, file)}: {type(e).__name__}: {reason}") from e


def _line(error: BaseException, file: str) -> int:
    """Return the line of the file that an error comes from."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 1
    return next((f.lineno or 1 for f in reversed(extract_tb(error.__traceback__)) if f.filename == file), 1)
