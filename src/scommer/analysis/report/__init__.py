"""A report of runs: one HTML page that works without a network and without other files."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from scommer.analysis.report.content import contents
from scommer.analysis.table import as_html
from scommer.errors import UsageError
from scommer.files import write_output
from scommer.runs.record import Record

ENDINGS = (".html", ".htm")


def check(path: Path) -> None:
    """Raise UsageError unless the name ends in .html or .htm, so that a typo cannot overwrite a record."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"cannot write '{path}': give a name that ends in .html")


def report(records: Sequence[Record]) -> str:
    """Return the page. Equal records give equal pages, in any order."""
    if not records:
        raise UsageError("there are no runs to report: give at least one")
    css, js = _read_asset("page.css"), _read_asset("page.js")
    # The page may run and load only its own parts, so that no name in a record can do harm.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(css)}; script-src {_hash(js)}; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_read_asset("page.html"))
    ordered = sorted(records, key=lambda r: r.name)
    return template.render(contents(ordered), as_html=as_html, css=Markup(css), js=Markup(js), policy=policy)


def write(page: str, path: Path) -> None:
    """Write the page, and create its folder if needed."""
    check(path)
    write_output(path, page.encode("utf-8", "replace"))  # a name may contain half a surrogate pair


def _read_asset(name: str) -> str:
    return (files("scommer.analysis.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
