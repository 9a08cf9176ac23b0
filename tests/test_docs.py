"""The examples in the documents run, and what they name exists."""

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scommer.analysis import figures
from scommer.analysis.selection import load_records as load
from scommer.methods import METHODS
from scommer.nn.networks import NETWORKS
from scommer.runs.presets import preset
from scommer.runs.record import Record
from scommer.streams import STREAMS

ROOT = Path(__file__).parents[1]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/records.md"])
def test_the_examples_run(document: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    registries: list[dict[str, Any]] = [METHODS, STREAMS, NETWORKS]  # type: ignore[list-item]
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


def benched(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record of a bench, and its timings by name."""
    record = json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text())
    return record, {t["what"]: t for t in record["timings"]}


def as_told(value: float, told: str) -> str:
    """A value with as many digits as were told."""
    return f"{value:.{len(told.split('.')[1])}f}"


def test_the_speed_that_is_told_is_that_of_the_records() -> None:
    text = (ROOT / "docs/performance.md").read_text().split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \| ([\d.]+) \| ([\w-]+) \|$", text, re.M)
    assert len(rows) == 10
    for what, told, name in rows:
        record, times = benched(name)
        one = times["compiled, one learner"]
        value = {
            "one": one["ms"],
            "four": times.get("compiled, 4 learners side by side", one)["ms"],
            "eight": times.get("compiled, 8 learners side by side", one)["ms"],
            "ratio": one["ms"] / record["floor_ms"],
            "all": record["score_s"],
            "GPU": one["mib"] / 1024,
            "start": record["start_s"],
        }["ratio" if "ratio" in what else what.split()[0]]
        assert told == as_told(value, told), what
        if what.startswith("GPU memory"):
            before = benched("h200-levers")[1]["compiled, one learner"]["mib"] / 1024
            assert f"in record h200-levers, {before:.2f} GiB" in text
        if name == "h200-scommer":
            assert f"({record['floor_ms']:.2f} ms for SCoMMER)" in text
        assert record["method"].upper() in what.upper() or record["method"] == "scommer"


def test_the_speed_in_the_readme_is_that_of_the_document() -> None:
    numbers = re.findall(r"\d+\.\d+", (ROOT / "README.md").read_text().split("## How fast")[1].split("\n## ")[0])
    assert len(numbers) == 3
    assert set(numbers) <= set(re.findall(r"\| ([\d.]+) ", (ROOT / "docs/performance.md").read_text()))


def test_what_each_lever_gains_is_that_of_the_record() -> None:
    section = (ROOT / "docs/performance.md").read_text().split("| left out |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", section, re.M)
    _, times = benched("h200-levers")
    rest = {
        "nothing": "compiled",
        "small": "captured",
        "convolutions": "without convolutions of our own",
        "streams": "without streams side by side",
        "all": "without kernels of our own",
        "the": "eager",
    }
    assert [what.split()[0] for what, _ in rows] == list(rest)
    for what, told in rows:
        assert told == as_told(times[f"{rest[what.split()[0]]}, one learner"]["ms"], told), what


def test_the_speed_on_a_cpu_is_that_of_the_records() -> None:
    section = (ROOT / "docs/performance.md").read_text().split("## On a CPU")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\w-]+) \|$", section, re.M)
    assert len(rows) == 2
    for _, ms, bare, ratio, name in rows:
        record, times = benched(name)
        found = times["eager, one learner"]["ms"]
        assert ms == as_told(found, ms)
        assert bare == as_told(record["bare_ms"], bare)
        assert ratio == as_told(found / record["bare_ms"], ratio)


def test_the_figures_are_what_their_commands_draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the same size and, seen from afar, look: letters differ a little between versions of Matplotlib."""
    monkeypatch.chdir(ROOT)
    shown = re.findall(r"!\[[^]]+\]\((figures/[^)]+)\)", (ROOT / "docs/figures.md").read_text())
    commands = [shlex.split(block) for block in blocks("docs/figures.md", "console")]
    assert [f"docs/{path}" for path in shown] == [words[-1] for words in commands]
    for _, _, name, *runs, _, path in commands:
        figures.save(figures.draw(name, load(map(Path, runs))), tmp_path / "drawn.png")
        with Image.open(path) as kept, Image.open(tmp_path / "drawn.png") as drawn:
            assert drawn.size == kept.size
            far = [
                np.asarray(image.convert("L").resize((32, 24), Image.Resampling.BOX), float) for image in (kept, drawn)
            ]
            assert np.abs(far[0] - far[1]).mean() < 4


def test_what_is_said_of_records_is_what_they_hold() -> None:
    """Names, and shapes by a run of every kind; all names that there are."""
    text = (ROOT / "docs/records.md").read_text()
    rows = re.findall(r"^\| (`[^|]+`) \| (\[[^|]+\]) \|", text, re.M)
    told = {
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
        size = {"T": len(record.matrix()), "C": len(record.stream["classes"]), "15": 15, "3": 3}
        size["E"] = record.settings["epochs"] * size["T"]
        for name, array in record.arrays.items():
            kind, *rest = name.split("/")
            stage = rest and rest[-1].isdigit()
            general = "/".join(
                [kind, *(["MEMORY"] if rest and not rest[0].isdigit() else []), *(["STAGE"] if stage else [])]
            )
            seen.add(general)
            tasks = len(record.stream["tasks"]) if kind == "task_probability" else size["T"]
            expected = [array.shape[-1] if n == "N" else (size | {"T": tasks})[n] for n in told[general].split(", ")]
            assert list(array.shape) == expected, (record.name, name)
    assert seen == told.keys()


def test_the_table_of_variants_tells_what_the_presets_hold() -> None:
    """Each row's settings exist in both variants, and their first words are their values."""
    rows = re.findall(
        r"^\| [^|]+ \| (`[^|]+`) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/variants.md").read_text(), re.M
    )
    assert len(rows) >= 20
    for setting_cell, *cells in rows:
        setting = re.findall(r"`(\w+)`", setting_cell)[0]
        for variant, cell in zip(("paper", "official"), cells, strict=True):
            held = preset("s-cifar10", "scommer", 200, variant)
            assert setting in held, setting
            value = held[setting]
            if setting in ("lr", "mean", "network"):  # described in words
                continue
            if isinstance(value, list):
                assert [float(v) for v in re.findall(r"[\d.]+", cell.split("]")[0])] == value
            else:
                word = str(value).lower() if isinstance(value, bool) else str(value)
                assert re.split(r"[\s,:;(]", cell.strip())[0] in (word, word.removesuffix(".0")), (
                    setting,
                    variant,
                    cell,
                )
