"""`scommer show` for several, unfinished and damaged runs."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from calling import QUICK, call
from PIL import Image

from scommer import Experiment, class_il, load_records, run
from scommer.runs.runner import TimeUp


def test_unfinished_runs_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["run", "s-digits", "-m", "er", "-b", "20", *QUICK, "--out", str(tmp_path)]
    call(capsys, *command)
    call(capsys, *command, "--seed", "1", "--minutes", "0.0001")
    out = call(capsys, "figure", "matrices", str(tmp_path), "-o", str(tmp_path / "figure.png"))[1]
    assert re.search(r"s-digits-er-20-seed1-\w+ is not finished and left out", out)


def test_a_folder_without_runs_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["results"], ["table", "main", "--done"]):
        code, _, err = call(capsys, *command)
        assert (code, "name another folder with --runs" in err) == (2, True)
    call(capsys, "run", "s-digits", "-m", "sgd", *QUICK, "--out", "mine")
    assert "`scommer results --runs mine`" in call(capsys, "results", "--runs", "mine")[1]


def test_names_with_brackets_are_shown_unchanged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("cat [new]", "[bold]", "[red]"):
        (tmp_path / "pics [old]" / name).mkdir(parents=True)
        for i in range(6):
            Image.new("L", (8, 8), 40 * i).save(tmp_path / "pics [old]" / name / f"{i}.png")
    command = ["run", str(tmp_path / "pics [old]"), "-m", "sgd", "--tasks", "3", *QUICK, "--seeds", "0-1"]
    code, out, _ = call(capsys, *command, "--out", str(tmp_path / "r [/x]"))
    assert code == 0
    assert "sgd on pics [old], seeds 0, 1" in out
    folders = sorted(p.parent for p in tmp_path.rglob("record.json"))
    assert all(f"record: {folder}\n" in out for folder in folders)
    assert call(capsys, "show", str(folders[0]))[0] == 0


def test_runs_with_the_same_name_in_two_folders_are_both_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for part in ("a", "b"):
        call(capsys, "run", "s-digits", "-m", "sgd", *QUICK, "--out", str(tmp_path / part))
    for chosen in (tmp_path, f"{tmp_path}@method=sgd", tmp_path / "*"):
        assert call(capsys, "show", str(chosen))[1].count("s-digits-sgd-seed0-") == 2


def test_a_damaged_record_is_listed_as_damaged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for seed in ("0", "1"):
        call(capsys, "run", "s-digits", "-m", "sgd", *QUICK, "--seed", seed, "--out", str(tmp_path / seed))
    (broken,) = tmp_path.glob("1/*/record.json")
    broken.write_text("{")
    code, out, _ = call(capsys, "show", str(tmp_path))
    assert code == 0
    assert re.search(r"damaged +1/s-digits-sgd-seed1-", out)
    assert re.search(r"\d +0/s-digits-sgd-seed0-", out)


def test_show_has_a_line_for_each_of_several_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for seed in ("0", "1"):
        call(capsys, "run", "s-digits", "-m", "er", "-b", "20", *QUICK, "--seed", seed, "--out", str(tmp_path))
    call(capsys, "run", "s-digits", "-m", "sgd", *QUICK, "--out", str(tmp_path), "--minutes", "0.0001")
    accuracy = {
        path.parent.name: json.loads(path.read_text())["scores"]["working"]["class_il"]["accuracy"]
        for path in tmp_path.glob("*/record.json")
    }
    (begun,) = (path.parent.name for path in tmp_path.glob("*/progress.json"))
    code, out, _ = call(capsys, "show", str(tmp_path))
    assert code == 0
    assert out.count("epochs=1, width=4") == 2
    lines = {line.split()[-1]: line.split() for line in out.splitlines()[1:] if "s-digits" in line}
    assert lines.keys() == {*accuracy, begun}
    assert all(lines[name][0] == f"{a:.1f}" for name, a in accuracy.items())
    assert lines[begun][-2] == "%"
    chosen = call(capsys, "show", f"{tmp_path}@seed=1")[1].splitlines()
    assert [line.split()[-1] for line in chosen if "s-digits" in line] == [n for n in accuracy if "seed1" in n]
    assert chosen[-1] == "one unfinished run is not shown: conditions select finished ones"
    code, _, err = call(capsys, "show", f"{tmp_path}@method=sgd")
    assert (code, err.strip().endswith("their method is er; 1 unfinished run is not looked at")) == (2, True)
    assert call(capsys, "show", f"{tmp_path}/*-er-*")[1].count("s-digits-er-20-") == 2
    code, out, _ = call(capsys, "show", str(tmp_path), "--json")
    assert code == 0
    rows = json.loads(out)
    assert {row["name"]: row["class_il.accuracy"] for row in rows} == accuracy
    code, out, _ = call(capsys, "show", f"{tmp_path}@seed=1", "--csv")
    assert code == 0
    (row,) = csv.DictReader(out.splitlines())
    (name,) = (n for n in accuracy if "seed1" in n)
    assert (row["name"], row["method"], row["buffer"], row["seed"]) == (name, "er", "20", "1")
    assert (row["epochs"], row["width"], row["flip"]) == ("1", "4", "false")
    assert float(row["class_il.accuracy"]) == accuracy[name]
    assert call(capsys, "show", str(tmp_path), "--csv", "--json")[0] == 2
    frame = load_records(tmp_path).to_frame()
    assert dict(zip(frame["name"], frame["class_il.accuracy"], strict=True)) == accuracy
    assert frame["buffer"].tolist() == [20, 20]


def test_a_run_that_failed_says_why_until_it_continues(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["run", "s-digits", "-m", "sgd", *QUICK, "--out", str(tmp_path)]
    code, _, err = call(capsys, *command, "--set", "lr=1e30")
    assert code == 1
    (folder,) = tmp_path.iterdir()
    code, out, _ = call(capsys, "show", str(folder))
    assert code == 0
    assert re.match(rf"{folder.name}: failed, \d+\.\d % ", out)
    assert out.splitlines()[1] == err.strip().removeprefix("scommer: ")
    assert "lower the learning rate" in json.loads(call(capsys, "show", str(folder), "--json")[1])["failure"]
    assert re.search(r"failed, \d+ % +s-digits-sgd-", call(capsys, "show", str(tmp_path))[1])
    call(capsys, *command, "--set", "lr=1e30", "--minutes", "0.000001")
    assert f"{folder.name}: not finished, 0.0 % " in call(capsys, "show", str(folder))[1]


def test_progress_counts_the_epochs_that_a_small_task_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    r, y = np.random.default_rng(0), np.arange(64) % 4
    stream = class_il((r.random((64, 8, 8)), y, r.random((4, 8, 8)), np.arange(4)), tasks=2, name="mine")
    with pytest.raises(TimeUp):
        run(Experiment(stream, "sgd", settings={"width": 4}), out=tmp_path, minutes=1e-4, device="cpu")
    (folder,) = tmp_path.iterdir()
    out = call(capsys, "show", str(folder))[1]
    assert re.search(r"task 1 of 2, epoch \d+ of 300$", out.splitlines()[1])  # 32 images: a step each, at least 300


def test_a_damaged_run_does_not_hide_the_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = {"name": "two", "steps": [1, 4], "saved": 0, "task": 0, "epoch": 0, "tasks": 2, "epochs": 1, "scores": {}}
    for name, progress in (("one", {}), ("two", whole)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").write_text(json.dumps(progress))
    code, out, _ = call(capsys, "show", str(tmp_path))
    assert code == 0
    assert [line.split()[3:] for line in out.splitlines()[1:]] == [["damaged", "one"], ["25", "%", "two"]]
    code, out, _ = call(capsys, "show", str(tmp_path / "t*"))
    assert code == 0
    assert [line.split()[3:] for line in out.splitlines()[1:]] == [["25", "%", "two"]]


def test_a_damaged_progress_file_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text("{")
    code, _, err = call(capsys, "show", str(tmp_path))
    assert code == 2
    assert "is damaged" in err
