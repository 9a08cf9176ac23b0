"""Render the documents of a repository from the templates in docs/templates and its records."""

import re
import textwrap
from pathlib import Path
from typing import Any

import jinja2

from scommer.errors import ScommerError, UsageError
from scommer.files import write_output
from scommer.paper.documents.vocabulary import FILTERS, Vocabulary, digits

TEMPLATES = Path("docs", "templates")
SUFFIX = ".jinja"
WIDTH = 120
NOTE = "<!-- Rendered by `make results` from {template}: edit that file, not this one. -->\n\n"


def documents(root: Path) -> dict[Path, str]:
    """Return every document that has a template, by its path; docs/templates mirrors the paths of the documents."""
    folder = root / TEMPLATES
    found = {path.relative_to(folder) for path in folder.rglob(f"*{SUFFIX}")}
    if not found:
        raise UsageError(f"{folder} has no templates: run this in a clone of the repository")
    vocabulary = Vocabulary(root)
    return {path.with_suffix(""): _render(root, path, vocabulary) for path in sorted(found)}


def render(root: Path, source: str, name: str = "template", vocabulary: Vocabulary | None = None) -> str:
    """Return the text of a template; an error names the template and its line."""
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({name: source}), undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.do"],
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=_formatted, autoescape=False,
    )  # fmt: skip
    environment.globals |= (vocabulary or Vocabulary(root)).functions()
    environment.filters |= FILTERS
    try:
        return environment.get_template(name).render()
    except (jinja2.TemplateError, ScommerError) as e:
        raise UsageError(f"{name}, line {_line(e)}: {e}") from e


def _render(root: Path, path: Path, vocabulary: Vocabulary) -> str:
    name = (TEMPLATES / path).as_posix()
    text = render(root, (root / name).read_text(), name, vocabulary)
    return NOTE.format(template=name) + wrapped(text)


def _formatted(value: Any) -> Any:
    """Return floats that no filter has formatted with two decimals, and other values as they are."""
    return digits(value, 2) if isinstance(value, float) else value


def _line(error: Exception) -> int:
    """Return the line of the template that raised an error."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    line, step = 0, error.__traceback__
    while step:
        if "__jinja_exception__" in step.tb_frame.f_globals:
            line = step.tb_lineno
        step = step.tb_next
    return line


def wrapped(text: str, width: int = WIDTH) -> str:
    """Fill the paragraphs and list items of Markdown to a width; leave tables, code, images and headings."""
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    blocks: list[str] = []
    for i, piece in enumerate(pieces):
        code = i % 2 == 1
        blocks += [piece] if code else [_fill(b, width) for b in re.split(r"\n{2,}", piece.strip("\n")) if b]
    return "\n\n".join(blocks) + "\n"


def _fill(block: str, width: int) -> str:
    if re.match(r"#|\||!\[", block):
        return block
    items = re.split(r"\n(?=- )", block) if block.startswith("- ") else [block]
    return "\n".join(_fill_item(item, width) for item in items)


def _fill_item(item: str, width: int) -> str:
    marker = r"(?<=\S) (?=(?:[-+*>]|#+|1[.)]) )"  # what follows would be a list or a heading at the start of a line
    text = re.sub(marker, "\0", " ".join(item.split()))
    filled = textwrap.fill(
        text, width, subsequent_indent="  " if item.startswith("- ") else "",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return filled.replace("\0", " ")


def main() -> None:
    """Render every document of the repository in the current folder."""
    for path, text in documents(Path()).items():
        write_output(path, text.encode())
