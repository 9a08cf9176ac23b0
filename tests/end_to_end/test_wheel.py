"""The wheel: it has every file, and works where there is no clone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import scommer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_versions_agree() -> None:
    assert PROJECT["version"] == scommer.__version__
    assert f"\nversion: {scommer.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {scommer.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_extra_is_named_where_people_install() -> None:
    extras = set(PROJECT["optional-dependencies"])
    for page in ("README.md", "docs/start.md"):
        assert extras <= set(re.findall(r"`(\w+)`", (ROOT / page).read_text())), page


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy, so that nothing is left in the tree or taken from an earlier build."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src" / "scommer", copy / "src" / "scommer", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "build", "--outdir", "dist"], cwd=copy, check=True, capture_output=True)
    (found,) = (copy / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def outside(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs a program of a fresh environment with the wheel, in a folder outside of the clone.

    Its dependencies are those of this environment. The .pth files there are not read, so the clone is not found.
    """
    place = tmp_path_factory.mktemp("outside")
    venv.create(place / "env")
    python = place / "env" / "bin" / "python"
    (site,) = (place / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [place / "env" / "bin" / program, *words]
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)

    where = run("python", "-c", "import scommer; print(scommer.__file__)").stdout.strip()
    assert Path(where).is_relative_to(place)
    return run


@pytest.mark.long
def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("scommer/")}
    here = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "scommer").rglob("*") if p.is_file()}
    assert packed == {name for name in here if "__pycache__" not in name}


@pytest.mark.long
def test_the_wheel_works_outside_of_the_clone(outside: Run) -> None:
    assert outside("scommer", "--version").stdout == f"scommer {scommer.__version__}\n"
    assert "gcil-longtail" in outside("scommer", "list").stdout
    assert "Weight of knowledge retrieval" in outside("scommer", "list", "s-cifar10", "-m", "scommer").stdout
    table = outside("scommer", "table", "main")
    assert "69.19 ± 0.61" in table.stdout
    assert "clone of the repository" in table.stderr
    for form in ("markdown", "csv", "latex"):
        assert "69.19" in outside("scommer", "table", "main", "--as", form).stdout


@pytest.mark.long
def test_the_demo_and_its_report_work_outside_of_the_clone(outside: Run) -> None:
    assert "accuracy.png" in outside("scommer", "demo").stdout
    assert "3 runs" in outside("scommer", "report", "runs/demo", "-o", "report.html").stdout
    outside("scommer", "figure", "matrices", "runs/demo", "-o", "matrices.pdf")
    learn = """
from sklearn.datasets import load_digits
from scommer import LifelongClassifier
x, y = load_digits(return_X_y=True)
print(LifelongClassifier().partial_fit(x, y).score(x, y) > 0.9, open("report.html").read().count("<section"))
"""
    assert outside("python", "-c", learn).stdout.startswith("True 2")
