"""The site: it builds without a warning, every link in it leads somewhere, and it needs no network."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs: make docs installs it")
pytest.importorskip("myst_parser")
pytest.importorskip("furo")

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """The ids of a page, its links, and everything that a browser would load with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {k: v for k, v in attrs if v}
        self.ids |= {found[k] for k in ("id", "name") if k in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in found:
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    words = ["--quiet", "--fail-on-warning", "--keep-going", "-d", str(out / "doctrees"), "docs", str(out / "html")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.mark.long
def test_links_lead_to_pages_and_headings_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 18
    for path, page in pages.items():
        for target in page.loaded:
            assert "//" not in target, f"{path.name} loads {target}"
            assert target.startswith("data:") or (path.parent / unquote(target.split("?")[0])).is_file(), target
        for target in page.links:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            other = (path.parent / unquote(file)).resolve() if file else path
            assert other.is_file(), f"{path.name}: {target}"
            if anchor and other in pages:
                assert unquote(anchor) in pages[other].ids, f"{path.name}: {target}"
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)]*", styles)


@pytest.mark.long
def test_the_pages_have_what_the_code_makes(site: Path) -> None:
    from scommer.methods import METHODS

    tutorial = (site / "tutorial.html").read_text()
    assert tutorial.count('class="output') >= 6
    assert len(re.findall(r'<img[^>]*src="_images/figure-\d.svg"', tutorial)) == 2
    settings = (site / "reference" / "settings.html").read_text()
    assert "Weight of knowledge retrieval" in settings
    assert all(f'<span class="pre">{name}</span>' in settings for name in METHODS)
    commands = (site / "reference" / "command-line.html").read_text()
    assert "--checkpoint-seconds" in commands
    assert "{figures}" not in commands
    python = (site / "reference" / "python.html").read_text()
    assert all(f'id="scommer.{name}"' in python for name in ("LifelongClassifier", "run", "Experiment", "class_il"))
    assert "reservoir" in (site / "searchindex.js").read_text()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_site"))
    return importlib.import_module("pages")


def test_links_out_of_the_site_become_text(pages: ModuleType) -> None:
    def written(text: str) -> str:
        made: str = pages.site_links(text, ROOT / "docs")
        return made

    assert written("see [the map](../CONTRIBUTING.md) and [`results/`](../results).") == "see the map and `results/`."
    assert written("[a](../docs/records.md#x) ![b](figures/demo.png)") == "[a](records.md#x) ![b](figures/demo.png)"
    assert written("`[a](no.md)` and [b](https://a.b/c) [d](#e)") == "`[a](no.md)` and [b](https://a.b/c) [d](#e)"
    assert written("```\n[a](no.md)\n```\n") == "```\n[a](no.md)\n```\n"
    with pytest.raises(FileNotFoundError, match=r"no\.md"):
        written("[a](no.md)")


def test_blocks_show_what_they_print_and_draw(pages: ModuleType, tmp_path: Path) -> None:
    text = "```python\nx = 2\nprint(x)\n```\nwords\n```python\nfrom matplotlib.figure import Figure\n\nFigure()\n```\n"
    made = pages.executed.with_output(text, tmp_path / "made")
    assert ":class: output\n2\n```" in made
    assert "](made/figure-1.svg)" in made
    assert (tmp_path / "made" / "figure-1.svg").read_text().count("<svg") == 1


def test_docstrings_become_restructured_text(pages: ModuleType) -> None:
    lines = ["Return `x` for |a| and b* of `classes_` in classes_.", "", ">>> `a`", "1", "", "`b`"]
    pages.docstrings.as_rst(None, "", "", None, None, lines)
    assert lines == [
        "Return ``x`` for \\|a\\| and b\\* of ``classes_`` in classes\\_.", "", ">>> `a`", "1", "", "``b``"
    ]  # fmt: skip
