"""The examples in the documents run, and what they name exists."""

import re
import shlex
import tomllib
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import QUICK, exit_code
from PIL import Image

from scommer.analysis import figures
from scommer.analysis.measures import MEASURES
from scommer.analysis.selection import load_records as load
from scommer.methods import METHODS
from scommer.nn.networks import NETWORKS
from scommer.paper import table_figure
from scommer.paper.tables import entries
from scommer.runs import presets
from scommer.runs.record import Record
from scommer.streams import STREAMS

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "docs" / "reference", ROOT / "results")
PAGES = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in folder.glob("*.md")]
TUTORIAL = "docs/tutorial.md"  # takes longer, and building the site executes it too


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(page, marks=[pytest.mark.long] if page == TUTORIAL else [])
        for page in PAGES
        if blocks(page, "python")
    ],
)
def test_the_examples_run(document: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    registries: list[Any] = [METHODS, STREAMS, NETWORKS, figures.FIGURES, MEASURES]
    before = [dict(registry) for registry in registries]
    known = deepcopy(presets.presets())
    monkeypatch.setattr(presets, "presets", lambda: known)
    names: dict[str, object] = {"__name__": "example"}
    try:
        for example in blocks(document, "python"):
            exec(compile(example, document, "exec", dont_inherit=True), names)
    finally:
        for registry, held in zip(registries, before, strict=True):
            registry.clear()
            registry.update(held)


def test_the_plugin_of_the_guide_works_in_its_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(METHODS)
    (tmp_path / "heavy.py").write_text(blocks("docs/extend.md", "python")[0])
    lines = "".join(blocks("docs/extend.md", "console")).splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("scommer")]
    assert [words[1] for words in commands] == ["run", "list"]
    try:
        for words in commands:
            assert exit_code(*words[1:], *(QUICK if words[1] == "run" else ())) == 0
    finally:
        METHODS.clear()
        METHODS.update(before)
    (points,) = (tomllib.loads(block)["project"]["entry-points"] for block in blocks("docs/extend.md", "toml"))
    assert list(points) == [registry._group for registry in (METHODS, NETWORKS, STREAMS)]


def test_the_docstring_example_of_the_package_runs() -> None:
    import doctest

    import scommer

    assert doctest.testmod(scommer) == (0, 3)


def test_every_command_exists() -> None:
    from typer.main import get_command

    from scommer.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    lines = [line for page in PAGES for block in blocks(page, "console") for line in block.splitlines()]
    assert len(lines) > 50
    for line in lines:
        words = line.split("#")[0].split()
        if words[:1] == ["scommer"]:
            command = commands[words[1]]
            command = command.commands[words[2]] if words[1] == "data" else command
            known = {option for p in command.params for option in p.opts}
            assert {w for w in words if w.startswith("-")} <= known, line
        elif words[:1] == ["make"]:
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()


def test_every_command_is_in_the_guide_and_every_page_on_the_site() -> None:
    from typer.main import get_command

    from scommer.cli import app

    guide = "".join(blocks("docs/commands.md", "console"))
    assert {c for c in get_command(app).commands if f"scommer {c}" not in guide} == set()  # type: ignore[attr-defined]
    listed = "".join(blocks("docs/index.md", "{toctree}")).split()
    pages = {Path(p).relative_to("docs").with_suffix("").as_posix() for p in PAGES if p.startswith("docs/")}
    assert pages - set(listed) == {"index"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_figures_are_what_their_commands_draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compare sizes and thumbnails: text differs a little between versions of Matplotlib."""
    monkeypatch.chdir(ROOT)
    shown = re.findall(r"!\[[^]]+\]\((figures/[^)]+)\)", (ROOT / "docs/figures.md").read_text())
    commands = [shlex.split(block) for block in blocks("docs/figures.md", "console")]
    assert [f"docs/{path}" for path in shown] == [words[-1] for words in commands]
    drawn = {path: figures.draw(name, load(map(Path, runs))) for _, _, name, *runs, _, path in commands}
    drawn["docs/figures/main.png"] = table_figure.figure(entries("main", load("results")))
    for path, figure in drawn.items():
        figures.save(figure, tmp_path / "drawn.png")
        with Image.open(path) as kept, Image.open(tmp_path / "drawn.png") as again:
            assert again.size == kept.size
            small = [
                np.asarray(image.convert("L").resize((32, 24), Image.Resampling.BOX), float) for image in (kept, again)
            ]
            assert np.abs(small[0] - small[1]).mean() < 4


def test_records_md_lists_every_field_and_array() -> None:
    """Names, and shapes in runs of every kind."""
    text = (ROOT / "docs/records.md").read_text()
    rows = re.findall(r"^\| (`[^|]+`) \| (\[[^|]+\]) \|", text, re.M)
    listed = {
        name: shape.strip("[]")
        for names, shapes in rows
        for name, shape in zip(re.findall("`(.+?)`", names), shapes.split("], ["), strict=True)
    }
    plain = re.findall(r"^\| (`[^|]+`) \| [^|]+ \|$", text, re.M)
    assert {n for names in plain for n in re.findall("`(.+?)`", names)} - {"class_il", "task_il"} == {
        f.name for f in fields(Record) if f.name != "arrays"
    }
    seen = set()
    for record in load(
        [ROOT / "docs/records", ROOT / "results/s-cifar10-joint-*", ROOT / "results/gcil-uniform-cls-*"]
    ):
        size = {"T": len(record.matrix()), "C": len(record.stream.classes), "15": 15, "3": 3}
        size["E"] = record.settings["epochs"] * size["T"]
        for name, array in record.arrays.items():
            kind, *rest = name.split("/")
            stage = rest and rest[-1].isdigit()
            general = "/".join(
                [kind, *(["MEMORY"] if rest and not rest[0].isdigit() else []), *(["STAGE"] if stage else [])]
            )
            seen.add(general)
            tasks = len(record.stream.tasks) if kind == "task_probability" else size["T"]
            expected = [array.shape[-1] if n == "N" else (size | {"T": tasks})[n] for n in listed[general].split(", ")]
            assert list(array.shape) == expected, (record.name, name)
    assert seen == listed.keys()


def test_the_settings_in_the_table_of_variants_exist() -> None:
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \| [^|]+ \| [^|]+ \|$", (ROOT / "docs/variants.md").read_text(), re.M)
    assert len(rows) >= 20
    for variant in ("paper", "official"):
        held = presets.settings("s-cifar10", "scommer", 200, variant)
        assert {name for cell in rows for name in re.findall(r"`(\w+)`", cell)} <= held.keys()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert ((ROOT / page).parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", ["docs/performance.md", "docs/variants.md", "docs/figures.md"])
def test_source_files_that_are_named_exist(page: str) -> None:
    for name in re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", (ROOT / page).read_text()):
        assert (ROOT / name).exists() or (ROOT / "src" / "scommer" / name).exists(), name
