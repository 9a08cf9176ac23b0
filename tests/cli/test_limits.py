"""What a user's system may do to a command: one clear line and an exit code, never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import call
from example_records import made_record
from PIL import Image

from scommer.errors import printable


def command(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "scommer", *arguments],
        text=True,
        stderr=subprocess.PIPE,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("L", (8, 8), 100 * (name == "one") + i).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def test_a_full_disk_behind_stdout() -> None:
    with Path("/dev/full").open("w") as full:
        done = command("list", stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_pipe_ends_a_command_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    done = command("list", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_terminal_without_unicode() -> None:
    done = command("list", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "scommer" in done.stdout


@pytest.mark.parametrize("arguments", [("show", "~nosuchuser/x"), ("run", "~nosuchuser/x")])
def test_a_user_that_does_not_exist(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert "~" in err


def test_a_name_that_is_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("show", "x" * 300), ("report", "x" * 300), ("run", "./" + "x" * 300)):
        code, _, err = call(capsys, *arguments)
        assert code in (1, 2), arguments
        assert len(err.splitlines()) == 1


def test_more_seeds_than_anybody_has(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "run", "s-digits", "--seeds", "0-200000000")
    assert code == 2
    assert "200,000,001 numbers" in err


def test_images_that_no_memory_holds(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    code, _, err = call(capsys, "run", str(photos), "--size", "1000000")
    assert code == 2
    assert "GiB" in err


def test_control_characters_in_names_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    evil = "\x1b]0;owned\x07\x1b[31mred"
    (photos / "one").rename(photos / evil)
    runs = ["--out", str(tmp_path / "runs"), "--epochs", "1", "--tasks", "2", "--save-weights", "--device", "cpu"]
    outputs = [call(capsys, "run", str(photos), *runs, "--set", "batch=4")]
    (folder,) = (tmp_path / "runs").iterdir()
    outputs += [call(capsys, "show", str(folder)), call(capsys, "predict", str(folder), str(photos))]
    outputs.append(call(capsys, "predict", str(folder), str(photos / f"{evil}.png")))
    assert [code for code, _, _ in outputs] == [0, 0, 0, 2]
    for _, out, err in outputs:
        assert "\x1b" not in out + err
        assert "\x07" not in out + err


EVIL = "\x1b]0;owned\x07\x9bm"


@pytest.mark.parametrize(
    "arguments",
    [
        ("data", "where", "--data", EVIL),
        ("run", "s-digits", "--out", EVIL, "--minutes", "1e-9"),
        ("list", "s-digits", "--method", EVIL),
        ("list", f"--{EVIL}"),
        (EVIL,),
    ],
)
def test_control_characters_that_were_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert code == (0 if arguments[0] in ("data", "run") else 2)
    assert "owned" in out + err
    assert not {"\x1b", "\x07", "\x9b"} & set(out + err)


def test_control_characters_in_a_record(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = made_record(stream="s-digits")
    record.versions["torch"] = record.settings["network"] = EVIL
    record.save(tmp_path)
    path = tmp_path / "record.json"
    path.write_text(path.read_text().replace("\\u009b", "\x9b"))  # JSON escapes the others
    for arguments in (("show", str(tmp_path)), ("show", str(tmp_path), "--json"), ("results", "--runs", str(tmp_path))):
        code, out, err = call(capsys, *arguments)
        assert code == 0
        assert "owned" in out
        assert not {"\x1b", "\x07", "\x9b"} & set(out + err)


PRINTED = {"plain ü 漢\n\t": "plain ü 漢\n\t", "\x1b[1m\x00\x9b": "\ufffd[1m\ufffd\ufffd", "a\rb": "a\ufffdb"}


@pytest.mark.parametrize(("text", "shown"), PRINTED.items())
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("files", [20, 12])
def test_few_open_files(files: int) -> None:
    import resource

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    limit: Callable[[], None] = few
    done = command("list", stdout=subprocess.DEVNULL, preexec_fn=limit)
    assert done.returncode in (0, 1)
