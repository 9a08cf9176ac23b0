"""Any record.json and arrays.npz: a record that fits its schema, or an error that names the file; never a traceback."""

import json
import shutil
import warnings
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from cases import Damage, cases, changed_json, checked_call, damages, odd_numbers, result_or_refusal
from example_records import made_record
from hypothesis import given, strategies as st

from scommer.analysis.figures import FIGURES
from scommer.analysis.selection import load_records
from scommer.errors import RunWarning
from scommer.runs.record import Record

RECORD = made_record("scommer", stream="s-digits")
with TemporaryDirectory() as folder:
    RECORD.save(Path(folder))
    JSON, NPZ = ((Path(folder) / name).read_bytes() for name in ("record.json", "arrays.npz"))

texts: st.SearchStrategy[bytes] = st.one_of(
    changed_json(JSON.decode()).map(lambda values: json.dumps(values).encode()),
    changed_json(JSON.decode()).map(lambda values: json.dumps(values, ensure_ascii=False).encode()),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two intact runs and one to be damaged."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("one", "two", "bad")):
        (folder / name).mkdir()
        made_record("scommer", seed, stream="s-digits").save(folder / name)
    shutil.copytree(folder / "one", tmp_path_factory.mktemp("other"), dirs_exist_ok=True)
    return folder


def put(runs: Path, text: bytes = JSON, packed: bytes = NPZ) -> Path:
    (runs / "bad" / "record.json").write_bytes(text)
    (runs / "bad" / "arrays.npz").write_bytes(packed)
    return runs / "bad"


def load(folder: Path) -> Record | None:
    """Load a record, all its arrays included; None if its values are refused."""
    record = result_or_refusal(lambda: Record.load(folder), folder / "record.json")
    if record is not None:
        arrays = result_or_refusal(lambda: dict(record.arrays), folder / "arrays.npz")
        assert all(a.dtype.kind in "fiub" for a in (arrays or {}).values())
    return record


def check_values(record: Record, values: dict[str, Any]) -> None:
    """Check against the file itself that the record holds what every reader relies on."""
    tasks = values["stream"]["tasks"]
    assert record.stream.tasks == tasks
    assert all(0 <= c < len(values["stream"]["classes"]) for task in tasks for c in task)
    for memory, by_setting in values["matrices"].items():
        for setting, rows in by_setting.items():
            matrix = record.matrix(memory, setting)
            assert matrix.tolist() == rows
            assert matrix.shape in ((1, len(tasks)), (len(tasks), len(tasks)))
            assert ((matrix >= 0) & (matrix <= 100)).all()
            assert np.isfinite(record.accuracy(memory, setting))
    assert np.isfinite(record.accuracy())
    assert 0 <= record.step_ms < np.inf


@cases()
@given(texts)
def test_changed_values(runs: Path, text: bytes) -> None:
    bad = put(runs, text)
    record = load(bad)
    if record:
        check_values(record, json.loads(text))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RunWarning)
        names = [r.name for r in load_records(runs)]
    assert len(names) == (3 if record else 2)
    assert [str(bad) in str(w.message) for w in said] == ([] if record else [True])


@cases()
@given(damages)
def test_damaged_text(runs: Path, damage: Damage) -> None:
    bad = put(runs, damage(JSON))
    record = load(bad)
    if record:
        check_values(record, json.loads(bad.joinpath("record.json").read_bytes()))


READING: list[tuple[str, ...]] = [
    ("show", "{bad}"),
    ("show", "{bad}", "--json"),
    ("show", "{runs}"),
    ("show", "{runs}@seed=0"),
    ("compare", "{bad}", "{runs}/two"),
    ("compare", "{runs}@seed=0", "{runs}@seed=1"),
    ("table", "main", "--runs", "{runs}"),
    ("table", "further", "--runs", "{bad}", "--as", "csv"),
    ("results", "--runs", "{runs}"),
    ("results", "--runs", "{bad}"),
    ("reproduce", "main", "--dry-run", "--runs", "{runs}"),
    ("predict", "{bad}", "{bad}"),
]
DRAWING: list[tuple[str, ...]] = [
    *(("figure", name, "{bad}", "--out", "{runs}/out.svg") for name in FIGURES),
    ("figure", "scores", "{runs}", "--out", "{runs}/out.png"),
    ("report", "{bad}", "--out", "{runs}/out.html"),
]


def read(runs: Path, command: tuple[str, ...]) -> None:
    checked_call(*(word.format(runs=runs, bad=runs / "bad") for word in command))


@cases()
@given(texts, st.sampled_from(READING))
def test_commands_read_changed_values(runs: Path, text: bytes, command: tuple[str, ...]) -> None:
    put(runs, text)
    read(runs, command)


@cases(0.1)
@given(texts, st.sampled_from(DRAWING))
def test_commands_draw_changed_values(runs: Path, text: bytes, command: tuple[str, ...]) -> None:
    put(runs, text)
    read(runs, command)


Change = tuple[str, str, Any]  # an array, what is done to it, and how
NAMES = st.sampled_from(sorted(RECORD.arrays))
changes: st.SearchStrategy[Change] = st.one_of(
    st.tuples(NAMES, st.just("values"), st.tuples(odd_numbers, st.integers(1, 3))),
    st.tuples(NAMES, st.just("shape"), st.lists(st.integers(0, 7), max_size=3)),
    st.tuples(NAMES, st.just("dtype"), st.sampled_from(["f2", "f4", "i1", "u8", "c16", "U3", "?", "M8[s]", "O"])),
    st.tuples(NAMES, st.just("rename"), st.sampled_from(["loss", "activity/working/x", "activity/9", "p_s/2", "x"])),
    st.tuples(NAMES, st.just("remove"), st.none()),
)


def changed_arrays(made: list[Change]) -> bytes:
    """Return arrays.npz with some arrays missing, under other names, or of other numbers, shapes or types."""
    arrays: dict[str, Any] = dict(RECORD.arrays)
    for name, change, how in made:
        array = arrays.pop(name, np.zeros(2))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if change == "values":
                value = np.float64(max(min(how[0], 1e308), -1e308)).astype(array.dtype)
                arrays[name] = np.where(np.arange(array.size).reshape(array.shape) % how[1], array, value)
            elif change == "shape":
                arrays[name] = np.ones(how, array.dtype)
            elif change == "dtype":
                arrays[name] = array.astype(how) if array.dtype.kind in "biuf" else np.zeros(array.shape, how)
            elif change == "rename":
                arrays[how] = array
    packed = BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


ARRAYS = [c for c in READING if c[0] == "show"]


@cases()
@given(st.lists(changes, min_size=1, max_size=3), st.sampled_from(ARRAYS))
def test_changed_arrays(runs: Path, made: list[Change], command: tuple[str, ...]) -> None:
    assert load(put(runs, packed=changed_arrays(made))) is not None  # its values are intact
    read(runs, command)


@cases()
@given(damages, st.sampled_from(ARRAYS))
def test_damaged_arrays(runs: Path, damage: Damage, command: tuple[str, ...]) -> None:
    assert load(put(runs, packed=damage(NPZ))) is not None
    read(runs, command)


@cases(0.1)
@given(st.lists(changes, min_size=1, max_size=3), st.sampled_from(DRAWING))
def test_commands_draw_changed_arrays(runs: Path, made: list[Change], command: tuple[str, ...]) -> None:
    put(runs, packed=changed_arrays(made))
    read(runs, command)


PROGRESS = {
    "name": "s-digits-er", "steps": [12, 140], "saved": 10, "task": 1, "epoch": 0, "tasks": 5, "epochs": 1,
    "scores": {"working": [90.0, 0.0, 0.0, 0.0, 0.0]},
}  # fmt: skip
progress = changed_json(json.dumps(PROGRESS)).map(lambda values: json.dumps(values).encode())


@cases()
@given(st.one_of(progress, damages.map(lambda damage: damage(json.dumps(PROGRESS).encode()))))
def test_any_progress(runs: Path, text: bytes) -> None:
    """An unfinished run is shown, alone and among others, or said to be damaged."""
    folder = runs / "unfinished"
    folder.mkdir(exist_ok=True)
    put(runs)
    (folder / "progress.json").write_bytes(text)
    for arguments in (("show", folder), ("show", folder, "--json")):
        code, printed = checked_call(*arguments)
        assert code == 0 or "progress.json is damaged" in printed
    code, printed = checked_call("show", runs)
    assert code == 0
    assert "unfinished" in printed
    shutil.rmtree(folder)
