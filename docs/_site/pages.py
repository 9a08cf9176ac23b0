"""What the site adds to the repository's Markdown: the tutorial's output, reference pages, adapted links."""

import re
from os.path import relpath
from pathlib import Path
from typing import Any

import docstrings
import executed
import reference
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
TOCTREE = re.compile(r"(```\{toctree\}\n)(.*?)(```)", re.DOTALL)
GENERATED = {"settings": reference.settings, "commands": reference.commands, "api": reference.api}


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace a page's text with the site's."""
    text = source[0]
    if page == "index":
        text = TOCTREE.sub(_without_missing, text)
    if page == "tutorial":
        text = executed.with_output(text, DOCS / "_executed")
    for name, generate in GENERATED.items():
        mark = f"<!-- generated: {name} -->"
        text = text.replace(mark, generate()) if mark in text else text
    text = text.replace("```console\n", "```bash\n")  # without prompts, all of it would be shown as output
    source[0] = site_links(text, Path(app.env.doc2path(page)).parent)


def _without_missing(toctree: re.Match[str]) -> str:
    """Return a table of contents without the pages that this version does not have."""
    lines = toctree[2].splitlines(keepends=True)
    held = [line for line in lines if not line.strip() or line[0] == ":" or (DOCS / f"{line.strip()}.md").exists()]
    return "".join([toctree[1], *held, toctree[3]])


def site_links(text: str, folder: Path) -> str:
    """Rewrite links: to other pages by their path, and to other files of the repository as plain text."""
    parts = CODE.split(_protected(text))
    parts[::2] = [LINK.sub(lambda m: _link(m, folder), part) for part in parts[::2]]
    return _restored("".join(parts))


def _protected(text: str) -> str:
    """Hide the backticks in the text of links, as in [`results/`](results), which is not code between links."""
    return re.sub(r"\[`([^`\]]+)`\]\(", "[\0\\1\0](", text)


def _restored(text: str) -> str:
    return text.replace("\0", "`")


def _link(match: re.Match[str], folder: Path) -> str:
    image, words, target = match.groups()
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return match[0]
    file = (folder / path).resolve()
    if not file.exists():
        raise FileNotFoundError(f"a link leads to {target}, which does not exist")
    if DOCS in file.parents and (image or file.suffix == ".md"):
        return f"{image}[{words}]({relpath(file, folder)}{f'#{anchor}' if anchor else ''})"
    return words


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", docstrings.as_rst)
    return {"parallel_read_safe": False}
