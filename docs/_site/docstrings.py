"""Docstrings are plain text with `code` in single backticks, as in Markdown; autodoc expects reStructuredText."""

import re
from typing import Any


def as_rst(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place; examples with >>> stay as they are."""
    example = False
    for i, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[i] = _line(line)


def _line(line: str) -> str:
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*|])|(?<=\w)_(?=\W|$)", lambda m: "\\" + m[0], part) for part in parts[::2]]
    return "``".join(parts)
