"""Any words after `scommer`: exit code 0, 1 or 2, no traceback, and no control characters on the terminal."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from cases import cases, checked_call, odd_text
from example_records import made_record
from hypothesis import event, given, strategies as st
from PIL import Image

from scommer.cli import app

CLASSIFIER = Path(__file__).parents[1] / "compatibility" / "files" / "classifier-scommer.safetensors"
PARSER: Any = typer.main.get_command(app)
COMMANDS: dict[tuple[str, ...], Any] = {
    **{(name,): command for name, command in PARSER.commands.items() if name != "data"},
    **{("data", name): command for name, command in PARSER.commands["data"].commands.items()},
}

# --- words

NUMBERS = [
    "0", "1", "-1", "2", "200", "0.5", "-0.5", "1e9", "1e308", "1e999", "nan", "inf", "-inf", "0x10", "1_000", "٣",
    "²", "1,2", "0-2", "2-0", "0-99999999999", "1,,2", "-", ",", "-0", "9223372036854775807", "9223372036854775808",
    "99999999999999999999999999999999",
]  # fmt: skip
NAMES = [
    "s-digits", "s-cifar10", "gcil-cifar100", "cifar10", "cifar100", "digits", "scommer", "er", "sgd", "joint",
    "ewc", "der++", "small", "resnet18", "mlp", "main", "memories", "ablation", "sensitivity", "variants",
    "further", "scores", "tasks", "history", "codes", "official", "paper", "terminal", "markdown", "csv", "latex",
    "cpu", "cuda", "cuda:99", "fp32", "bf16", "tensorboard", "working", "long_term",
]  # fmt: skip
SETTINGS = [
    "lr=0.1", "lr=nan", "lr=-1", "lr=inf", "epochs=0", "epochs=1.5", "epochs=true", "width=0", "width=-3",
    "batch=0", "network=none", "active=[]", "active=[0.9,0.8]", "active=[2]", "r=1e400", "mean=[]", "std=[0]", "=",
    "=1", "lr", "lr=", "lr=[[[[1]]]]", 'lr="x', "lr='''x", "lr=1979-05-27", "lr={a=1}", "warmup=-1", "depth=0",
    "stages=99", "batch=99999999999", "epochs=99999999999999999999",
]  # fmt: skip
PATHS = [
    ".", "runs", "runs/one", "runs/two", "runs/damaged", "runs/one/record.json", "runs/missing", "runs/*",
    "runs/**", "runs@seed=0", "runs@preset", "runs@seed=9", "runs@x=1", "runs@", "@", "runs/[", "photos",
    "photos/one", "photos/one/0.png", "photos/notes.txt", "model.safetensors", "./x.py", "out.png", "out.svg",
    "out.html", "out.pdf", "~nosuchuser/x", "./", "photos/",
]  # fmt: skip
words = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(NAMES),
    st.sampled_from(SETTINGS),
    st.sampled_from(PATHS),
    st.sampled_from(["", " ", "--", "-", "x" * 300, "é漢🙂", "\x1b[31mred", "\x1b]0;title\x07", "a\rb", "\x9b1m"]),
    odd_text.map(lambda text: text.replace("\x00", "").replace("/", "").replace("..", "")),  # stays in its folder
)
RUNS = ["runs", "runs/one", "runs/two", "runs@seed=0", "runs/*", "runs@preset"]
SENSIBLE = {  # values that a command accepts, by the name of its parameter
    "stream": ["s-digits", "photos", "./photos"], "method": ["er", "sgd", "scommer"], "methods": ["er", "scommer"],
    "streams": ["s-cifar10", "s-cifar100"], "buffer": ["1", "50"], "buffers": ["200"], "seed": ["0", "7"],
    "seeds": ["0", "0-1", "3,1"], "variant": ["official", "paper"], "epochs": ["1", "3"], "tasks": ["1", "2"],
    "settings": ["lr=0.1", "width=2", "network=small", "batch=4", "drop_last=False", "lr=.5"], "size": ["1", "9"],
    "validation": ["0", "0.1"], "out": ["out", "new/out", "out.png", "out.html", "\x1b[31mout", "é漢"],
    "data": [".", "missing"], "device": ["cpu"], "precision": ["fp32"], "minutes": ["1e-9"], "log": ["tensorboard"],
    "checkpoint_seconds": ["0", "9"], "trained": ["model.safetensors"], "images": ["photos", "photos/one/0.png"],
    "memory": ["working"], "run_folder": RUNS, "runs": RUNS, "results": RUNS, "a": RUNS, "b": RUNS,
    "form": ["terminal", "markdown", "csv", "latex"], "together": ["1"], "plugin": ["plugin.py"],
    "network": ["small"], "classes": ["2"], "steps": ["1"], "cohorts": ["1"],
}  # fmt: skip
NAMED = {"figure": ["scores", "tasks", "history", "matrices"], "data": ["cifar10"]}  # for the parameter `name`
TABLES = ["main", "memories", "ablation", "sensitivity", "variants", "further", "plus"]
# Nothing trains, is timed or is downloaded for long: what comes last wins, and a word too many is an error.
SHORT = {
    ("run",): ["--minutes", "1e-9"],
    ("reproduce",): ["--dry-run"],
    ("bench",): ["--method", "none"],
    ("demo",): ["--seed", "-1"],
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Return a command with arguments and options of its own, few of them with a value that makes no sense."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    line, odd = list(name), draw(st.sampled_from([0.0, 0.0, 0.2, 0.5]))
    for parameter in COMMANDS[name].params:
        values = words
        if draw(st.floats(0, 1)) >= odd:
            sensible = NAMED.get(name[0], TABLES) if parameter.name == "name" else SENSIBLE.get(parameter.name, ["1"])
            values = st.sampled_from(sensible)
        if parameter.param_type_name == "argument":
            if not odd or draw(st.integers(0, 9)):
                line += draw(st.lists(values, min_size=1, max_size=2 if parameter.nargs == -1 else 1))
        elif parameter.name != "help" and not draw(st.integers(0, 3)):
            line.append(draw(st.sampled_from(parameter.opts)))
            line += [] if getattr(parameter, "is_flag", False) else [draw(values)]
    if odd and not draw(st.integers(0, 4)):
        line.insert(draw(st.integers(0, len(line))), draw(words))
    return [*line, *SHORT.get(name, [])]


@pytest.fixture(scope="module")
def example_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for seed, name in enumerate(("one", "two")):
        (folder / "runs" / name).mkdir(parents=True)
        made_record("scommer", seed, stream="s-digits").save(folder / "runs" / name)
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("L", (8, 8), 100 * seed + i).save(folder / "photos" / name / f"{i}.png")
    (folder / "runs" / "damaged").mkdir()
    (folder / "runs" / "damaged" / "record.json").write_text("{")
    (folder / "photos" / "notes.txt").write_text("no image")
    (folder / "plugin.py").write_text("answer = 42\n")
    shutil.copy(CLASSIFIER, folder / "model.safetensors")
    return folder


@pytest.fixture
def here(example_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, an empty home, and no network."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("there is no network")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SCOMMER_DATA", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return example_files


def restore(files: Path) -> None:
    """Put the files back that an earlier case may have changed."""
    for path in Path.cwd().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(files, Path.cwd(), dirs_exist_ok=True)


@cases()
@given(command_lines())
def test_commands(here: Path, line: list[str]) -> None:
    restore(here)
    code, _ = checked_call(*line)
    event(f"exit code {code}" + (f" of {line[0]}" if (line[0],) in COMMANDS else ""))


@cases()
@given(st.lists(st.one_of(words, st.sampled_from(["--help", "--version", "run", "show", "data", "list"])), max_size=6))
def test_any_words(here: Path, line: list[str]) -> None:
    restore(here)
    if "run" in line or "demo" in line or "bench" in line:
        line = [*line, "--minutes"]  # nothing trains: its value is missing
    checked_call(*line)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help(name: tuple[str, ...]) -> None:
    code, printed = checked_call(*name, "--help")
    assert code == 0
    assert " ".join(("scommer", *name)) in printed
