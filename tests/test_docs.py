"""The examples in the documents run, and what they name exists."""

import re
import shlex
import tomllib
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
from scommer.runs.presets import presets, settings
from scommer.runs.record import Record
from scommer.streams import STREAMS

ROOT = Path(__file__).parents[1]
PAGES = [
    str(path.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs", ROOT / "results") for path in folder.glob("*.md")
]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/records.md", "docs/cluster.md"])
def test_the_examples_run(document: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    registries: list[Any] = [METHODS, STREAMS, NETWORKS, figures.FIGURES, MEASURES]
    before = [dict(registry) for registry in registries]
    names: dict[str, object] = {"__name__": "example"}
    examples = blocks(document, "python")
    assert examples
    try:
        for example in examples:
            exec(compile(example, document, "exec", dont_inherit=True), names)
    finally:
        for registry, held in zip(registries, before, strict=True):
            registry.clear()
            registry.update(held)
        presets.cache_clear()


def test_the_plugin_of_the_guide_works_in_its_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(METHODS)
    (tmp_path / "heavy.py").write_text(blocks("CONTRIBUTING.md", "python")[0])
    lines = "".join(blocks("CONTRIBUTING.md", "console")).splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("scommer")]
    assert [words[1] for words in commands] == ["run", "list"]
    try:
        for words in commands:
            assert exit_code(*words[1:], *(QUICK if words[1] == "run" else ())) == 0
    finally:
        METHODS.clear()
        METHODS.update(before)
    (points,) = (tomllib.loads(block)["project"]["entry-points"] for block in blocks("CONTRIBUTING.md", "toml"))
    assert list(points) == [registry._group for registry in (METHODS, NETWORKS, STREAMS)]


def test_the_docstring_example_of_the_package_runs() -> None:
    import doctest

    import scommer

    assert doctest.testmod(scommer) == (0, 3)


def test_every_command_in_the_readme_exists(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.main import get_command

    from scommer.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for line in "".join(blocks("README.md", "console")).splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["scommer"]:
            command = commands[words[1]]
            command = command.commands[words[2]] if words[1] == "data" else command
            known = {option for p in command.params for option in p.opts}
            assert {w for w in words if w.startswith("--")} <= known, line
        elif words[:1] == ["make"]:
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()


def test_the_figures_are_what_their_commands_draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compare sizes and thumbnails: text differs a little between versions of Matplotlib."""
    monkeypatch.chdir(ROOT)
    shown = re.findall(r"!\[[^]]+\]\((figures/[^)]+)\)", (ROOT / "docs/figures.md").read_text())
    commands = [shlex.split(block) for block in blocks("docs/figures.md", "console")]
    assert [f"docs/{path}" for path in shown] == [words[-1] for words in commands]
    for _, _, name, *runs, _, path in commands:
        figures.save(figures.draw(name, load(map(Path, runs))), tmp_path / "drawn.png")
        with Image.open(path) as kept, Image.open(tmp_path / "drawn.png") as drawn:
            assert drawn.size == kept.size
            small = [
                np.asarray(image.convert("L").resize((32, 24), Image.Resampling.BOX), float) for image in (kept, drawn)
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
        held = settings("s-cifar10", "scommer", 200, variant)
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
