"""Which code made a record, and what it ran on."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import scommer
from scommer import provenance
from scommer.device import device_facts


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Copy the package to a folder without a git history; return it, and a function that loads its `provenance`."""
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.delenv("SCOMMER_COMMIT", raising=False)
    package = tmp_path / "code" / "scommer"
    shutil.copytree(Path(scommer.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def load():
        spec = importlib.util.spec_from_file_location("a_copy_of_provenance", package / "provenance.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return package, load


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_code_without_a_history_is_identified_by_its_sources(copy):
    _, load = copy
    identity = load().code_identity()
    assert identity == {"commit": None, "dirty": None, "sources": provenance.sources()}


def test_the_commit_may_be_set_if_there_is_no_history(copy, monkeypatch):
    _, load = copy
    monkeypatch.setenv("SCOMMER_COMMIT", "f" * 40)
    assert load().code_identity()["commit"] == "f" * 40


def test_code_without_git_is_identified_by_its_sources(copy, monkeypatch):
    _, load = copy
    monkeypatch.setenv("PATH", "/nonexistent")
    assert load().code_identity() == {"commit": None, "dirty": None, "sources": provenance.sources()}


def test_the_commit_and_later_changes_are_identified(copy, monkeypatch):
    package, load = copy
    git(package, "init")
    git(package, "add", ".")
    git(package, "commit", "-m", "all")
    commit = git(package, "rev-parse", "HEAD")
    monkeypatch.setenv("SCOMMER_COMMIT", "f" * 40)  # history is believed first
    assert load().code_identity() == {"commit": commit, "dirty": False, "sources": provenance.sources()}
    (package / "errors.py").write_text("# changed\n")
    changed = load().code_identity()
    assert (changed["commit"], changed["dirty"]) == (commit, True)
    assert changed["sources"] != provenance.sources()


def test_an_untracked_copy_inside_another_repository_does_not_have_its_commit(copy):
    package, load = copy
    (package.parent / "README").write_text("another project")
    git(package.parent, "init")
    git(package.parent, "add", "README")
    git(package.parent, "commit", "-m", "another")
    assert load().code_identity()["commit"] is None


def test_the_hash_of_sources_changes_with_any_source_file_and_only_then(copy):
    package, load = copy
    original = load().sources()
    assert original == provenance.sources()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"compiled")
    assert load().sources() == original
    seen = {original}
    for name in ("runs/presets.toml", "methods/er.py", "streams/gcil.py"):
        path = package / name
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        seen.add(load().sources())
        path.write_bytes(content)
        assert load().sources() == original
    (package / "methods" / "er.py").rename(package / "methods" / "er2.py")
    seen.add(load().sources())
    assert len(seen) == 5


def test_this_code_is_identified():
    identity = provenance.code_identity()
    assert set(identity) == {"commit", "dirty", "sources"}
    assert len(identity["sources"]) == 16
    assert int(identity["sources"], 16)


def test_versions_and_device_are_named():
    assert provenance.versions()["torch"] == torch.__version__
    assert provenance.versions()["scommer"] == scommer.__version__
    facts = device_facts(torch.device("cpu"))
    assert facts["type"] == "cpu"
    assert facts["name"]
    assert facts["threads"] == torch.get_num_threads()
