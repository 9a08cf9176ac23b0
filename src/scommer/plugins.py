"""Plugins: scripts that register methods, networks, streams and presets."""

import sys
from hashlib import sha256
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from scommer.errors import UsageError

LOADED: dict[str, None] = {}  # in order; processes that this one starts load them too


def load_plugin(path: Path) -> None:
    """Run a script for what it registers. It may import modules from its own folder."""
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
    LOADED[file] = None


def _line(error: BaseException, file: str) -> int:
    """Return the line of the file that an error comes from."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 1
    return next((f.lineno or 1 for f in reversed(extract_tb(error.__traceback__)) if f.filename == file), 1)
