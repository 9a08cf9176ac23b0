"""Methods, networks, streams and presets from a script (`--plugin`) and from an installed package."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from calling import call
from PIL import Image

from scommer import cli, plugins
from scommer.methods import METHODS
from scommer.nn.networks import NETWORKS
from scommer.runs import presets
from scommer.streams import STREAMS

SHADES = '''
from dataclasses import dataclass

import numpy as np

from scommer import class_il, from_arrays
from scommer.methods.er import ER
from scommer.nn.networks import MLP, Architecture
from scommer.runs.presets import register


@dataclass(frozen=True)
class Doubled(ER):
    """Replay of brightened images."""

    gain: "float" = 2.0  # g, factor of the brightness


def flat(image_shape, classes, depth, activate, **settings):
    return MLP(int(np.prod(image_shape)), classes, **settings)


def shades(root):
    with np.load(root / "shades.npz") as arrays:
        return from_arrays(arrays["images"], arrays["labels"], name="shades")


FLAT = Architecture(flat, width=12, depth=1, stages=1)
STREAM = (shades, lambda data, validation, name: class_il(data, 2, validation=validation, name=name))
register("""
[stream.s-shades]
network = "flat"
epochs = 2
mean = [0.5]
std = [0.25]
[cell.s-shades.doubled.20]
gain = 3.0
[cell.s-shades.doubled.500]
gain = 5.0
""")
'''
REGISTER = """
from scommer.methods import METHODS
from scommer.nn.networks import NETWORKS
from scommer.streams import STREAMS

METHODS["doubled"], NETWORKS["flat"], STREAMS["s-shades"] = Doubled, FLAT, STREAM
"""
ENTRY_POINTS = """
[scommer.methods]
doubled = shades_package:Doubled
broken = shades_package:Missing

[scommer.networks]
flat = shades_package:FLAT

[scommer.streams]
s-shades = shades_package:STREAM
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with grey images of four classes."""
    folder = tmp_path / "data"
    folder.mkdir()
    labels = np.arange(160) % 4
    noise = np.random.default_rng(0).integers(0, 30, (160, 6, 6))
    np.savez(folder / "shades.npz", images=(60 * labels[:, None, None] + noise).astype(np.uint8), labels=labels)
    return folder


def scommer(*arguments: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, with a folder of installed packages."""
    folders = [str(path)] if path else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "scommer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def learn(data: Path, out: Path) -> list[object]:
    return ["run", "s-shades", "-m", "doubled", "-b", 20, "--data", data, "--out", out, "--device", "cpu"]


def check_record(out: Path, settings: dict[str, object]) -> Path:
    (folder,) = out.iterdir()
    record = json.loads((folder / "record.json").read_text())
    assert (record["experiment"]["stream"], record["experiment"]["method"]) == ("s-shades", "doubled")
    assert record["stream"]["tasks"] == [[0, 1], [2, 3]]
    assert {name: record["settings"][name] for name in settings} == settings
    return folder


PRESETS = {"network": "flat", "epochs": 2, "mean": [0.5], "std": [0.25], "gain": 3.0}


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove at the end what a script registers in this process."""
    known = deepcopy(presets.presets())
    monkeypatch.setattr(presets, "presets", lambda: known)
    before = [(registry, dict(registry)) for registry in (METHODS, NETWORKS, STREAMS)]
    yield
    for registry, entries in before:
        for name in set(registry) - set(entries):
            del registry[name]
    plugins.LOADED.clear()


@pytest.mark.usefixtures("registries")
def test_a_script_registers_a_method_a_network_a_stream_and_presets(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "shades.py").write_text(SHADES + REGISTER)
    plugin, out = ["--plugin", str(tmp_path / "shades.py")], tmp_path / "runs"
    done = scommer(*learn(data, out), *plugin, "--save-weights")
    assert done.returncode == 0, done.stderr
    folder = check_record(out, PRESETS)
    Image.new("L", (6, 6), 10).save(tmp_path / "dark.png")
    predict = ["predict", str(folder), str(tmp_path / "dark.png"), "--json", "--device", "cpu"]
    code, _, err = call(capsys, *predict)
    assert (code, "unknown method 'doubled'" in err) == (2, True)
    assert json.loads(call(capsys, *predict, *plugin)[1])["class"] in {"0", "1", "2", "3"}
    listed = call(capsys, "list", *plugin)[1]
    assert "Replay of brightened images." in listed
    assert re.search(r"│ s-shades +│ shades +│ – ", listed)
    explained = call(capsys, "list", "s-shades", "-m", "doubled", "-b", "400", *plugin)[1]
    assert re.search(r"\ngain +5\.0 +g +Factor of the brightness\.", explained)
    measured = call(capsys, "bench", "-m", "doubled", "--network", "flat", "--steps", "1", "--cohorts", "1", "--json",
                    "--device", "cpu", *plugin)[1]  # fmt: skip
    assert json.loads(measured)["network"] == "flat"
    sys.path.remove(str(tmp_path))


def test_an_installed_package_registers_a_method_a_network_a_stream_and_presets(data: Path, tmp_path: Path) -> None:
    site, out = tmp_path / "site", tmp_path / "runs"
    info = site / "shades_package-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "shades_package.py").write_text(SHADES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shades-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    done = scommer(*learn(data, out), "--set", "gain=4", path=site)
    assert done.returncode == 0, done.stderr
    check_record(out, PRESETS | {"gain": 4.0})
    assert done.stderr.count("warning: skipped the entry point broken = shades_package:Missing of shades-package") == 1


COMMANDS = {
    "run": ["s-digits"], "predict": ["run", "image.png"], "demo": [], "reproduce": ["main"], "show": ["run"],
    "table": ["main"], "results": [], "figure": ["tasks", "runs"], "compare": ["a", "b"], "report": ["runs"],
    "learn": ["model.safetensors", "photos"], "export": ["model.safetensors"],
    "forget": ["model.safetensors", "--class", "a"],
    "bench": [], "list": [], "sweep": ["s-digits"], "data get": ["cifar10"], "data where": [],
}  # fmt: skip


def test_every_command_is_tried() -> None:
    named = {c.name for c in cli.app.registered_commands} | {f"data {c.name}" for c in cli.data_app.registered_commands}
    assert named == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_plugins(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.py").write_text("import sys\nsys.loaded = getattr(sys, 'loaded', 0) + 1\n")
    (tmp_path / "two.py").write_text("import sys\n\nraise ValueError(f'after {sys.loaded}\\nsecond line')\n")
    files = [str(tmp_path / name) for name in ("one.py", "two.py")]
    try:
        code, _, err = call(capsys, *command.split(), *COMMANDS[command], "--plugin", files[0], "--plugin", files[1])
        assert (code, sys.loaded) == (2, 1)  # type: ignore[attr-defined]
    finally:
        del sys.loaded  # type: ignore[attr-defined]
        sys.path.remove(str(tmp_path))
    assert err == f"scommer: plugin {files[1]}, line 3: ValueError: after 1\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = 1\nb = (\n", "line 2: SyntaxError: '(' was never closed"),
        ("\n\nimport nowhere_to_be_found", "line 3: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("import json\njson.loads('{')", "line 2: JSONDecodeError"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
        ("from scommer.methods import METHODS\nMETHODS['x'] = 3", "line 2: UsageError: 3 cannot be 'x'"),
        ("from scommer.runs import presets\npresets.register('x')", "line 2: UsageError: these presets are not TOML"),
        ("def f():\n    return unknown\n\nf()", "line 2: NameError: name 'unknown' is not defined"),
        ("\0", "line 1: SyntaxError"),
    ],
)
def test_the_error_of_a_script_names_its_file_and_line(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(content)
    code, _, err = call(capsys, "list", "--plugin", str(tmp_path / "mine.py"))
    sys.path.remove(str(tmp_path))
    assert code == 2
    assert err.startswith(f"scommer: plugin {tmp_path}/mine.py, {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("name", "message"), [("no.py", "there is no plugin"), ("a.txt", "ends in .py")])
def test_a_file_that_is_not_a_script_is_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("")
    code, _, err = call(capsys, "list", "--plugin", str(tmp_path / name))
    assert (code, message in err, err.count("\n")) == (2, True, 1)


def test_a_script_may_import_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_plugins_module.py").write_text("value = 1\n")
    (tmp_path / "mine.py").write_text("import my_plugins_module\nassert my_plugins_module.value == 1\n")
    assert call(capsys, "data", "where", "--plugin", str(tmp_path / "mine.py"))[0] == 0
    sys.path.remove(str(tmp_path))
