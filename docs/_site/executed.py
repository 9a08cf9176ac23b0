"""Run the Python in a page and show what it prints and draws."""

import ast
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scommer.analysis.figures import as_svg

BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def with_output(text: str, folder: Path) -> str:
    """Return the page with the output of each block below it; figures are written to a folder next to the page."""
    names: dict[str, Any] = {"__name__": "page"}
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []

    def run(match: re.Match[str]) -> str:
        printed, value = _execute(match[1], names)
        shown = f"\n```{{code-block}} text\n:class: output\n{printed.rstrip()}\n```\n" if printed.strip() else ""
        if isinstance(value, Figure):
            made.append(folder / f"figure-{len(made) + 1}.svg")
            made[-1].write_bytes(as_svg(value, transparent=False))
            shown += f"\n![A figure, drawn by the code above]({folder.name}/{made[-1].name})\n"
        return match[0] + shown

    return BLOCK.sub(run, text)


def _execute(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Return what a block prints, and the value of its last line if that is an expression."""
    *body, last = ast.parse(code).body
    value, out = None, io.StringIO()
    with redirect_stdout(out):
        exec(compile(ast.Module(body, []), "page", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "page", "eval"), names)
        else:
            exec(compile(ast.Module([last], []), "page", "exec"), names)
    return out.getvalue(), value
