"""Records: saved and loaded without loss, and refused with a clear message where they are damaged."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_facts import CODE, DEVICE, EXPERIMENT, STREAM, TIMES

from scommer.analysis.selection import load_records
from scommer.errors import RunError, RunWarning, UsageError
from scommer.runs import record as records
from scommer.runs.record import Record

ROOT = Path(__file__).parents[2]
STORED = [path for folder in ("results", "docs") for path in sorted((ROOT / folder).rglob("record.json"))]
MATRIX = [[90.0, 10.5], [30.25, 70.0]]


def made(**changes: Any) -> Record:
    values = {
        "name": "s-digits-er-50-seed0-abcdef",
        "experiment": replace(EXPERIMENT, method="er"),
        "settings": {"lr": 0.1, "active": [0.9, 0.8], "sparse": False, "width": None, "network": "small"},
        "stream": replace(STREAM, classes=["null", "eins", "zwei", "drei – ü"]),
        "inference": "working",
        "matrices": {"working": {"class_il": MATRIX, "task_il": [[95.0, 50.0], [80.0, 99.0]]},
                     "stable": {"class_il": [[1.0, 2.0], [3.0, 4.0]]}},
        "untrained": {"class_il": [10.0, 12.0]},
        "scores": {"working": {"class_il": {"accuracy": 50.125}, "task_il": {"accuracy": 89.5}},
                   "stable": {"class_il": {"accuracy": 3.5}}},
        "code": CODE, "versions": {"python": "3.11"}, "device": DEVICE, "times": TIMES,
        "arrays": {
            "loss": np.array([1.5, 0.1 + 0.2]),
            "activity/working/1": np.arange(12, dtype=np.int32).reshape(4, 3),
            "p_s/1": np.array([[0.1]] * 4, dtype=np.float32),
            "none": np.zeros((0, 4)),
            "flag": np.array(True),
        },
    }  # fmt: skip
    return Record(**values | changes)


def strict_json(text: str) -> Any:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Save a record and change its JSON."""
    made().save(folder)
    values = json.loads((folder / "record.json").read_text())
    change(values)
    (folder / "record.json").write_text(json.dumps(values))


# --- save and load


def test_a_saved_record_loads_unchanged(tmp_path: Path) -> None:
    record = made()
    record.save(tmp_path)
    again = Record.load(tmp_path)
    plain, plain_again = ({k: v for k, v in vars(r).items() if k != "arrays"} for r in (record, again))
    assert plain_again == plain
    assert set(again.arrays) == set(record.arrays)
    for name, array in record.arrays.items():
        assert again.arrays[name].dtype == array.dtype
        assert again.arrays[name].shape == array.shape
        assert np.array_equal(again.arrays[name], array)


def test_every_record_of_the_repository_is_saved_again_byte_for_byte(tmp_path: Path) -> None:
    assert len(STORED) > 100
    for path in STORED:
        record = Record.load(path.parent)
        record.arrays = {}
        record.save(tmp_path)
        assert (tmp_path / "record.json").read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("experiment", ["given"]),
        ("stream", ["image_shape", "dtype", "range", "images"]),
        ("code", ["earlier"]),
        ("device", ["threads", "precision"]),
        ("times", ["together"]),
    ],
)
def test_keys_that_early_records_lack_are_none_and_stay_absent(tmp_path: Path, part: str, keys: list[str]) -> None:
    edit(tmp_path, lambda values: [values[part].pop(key, None) for key in keys])
    before = json.loads((tmp_path / "record.json").read_text())
    record = Record.load(tmp_path)
    assert [getattr(getattr(record, part), key) for key in keys] == [None] * len(keys)
    record.save(tmp_path)
    assert json.loads((tmp_path / "record.json").read_text()) == before


def test_values_that_are_none_stay_in_the_file(tmp_path: Path) -> None:
    made(experiment=replace(EXPERIMENT, buffer=None), code=replace(CODE, commit=None, dirty=None)).save(tmp_path)
    values = json.loads((tmp_path / "record.json").read_text())
    assert (values["experiment"]["buffer"], values["code"]["commit"], values["code"]["dirty"]) == (None, None, None)


def test_a_record_is_two_files(tmp_path: Path) -> None:
    made().save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arrays.npz", "record.json"]
    values = strict_json((tmp_path / "record.json").read_text())
    assert values["matrices"]["working"]["class_il"] == MATRIX
    assert values["format"] == 1
    assert "arrays" not in values


def test_saving_again_replaces_the_files(tmp_path: Path) -> None:
    made().save(tmp_path)
    made(name="other", arrays={}).save(tmp_path)
    again = Record.load(tmp_path)
    assert again.name == "other"
    assert again.arrays == {}


def test_a_record_without_arrays_loads(tmp_path: Path) -> None:
    made().save(tmp_path)
    assert Record.load(str(tmp_path)).arrays.keys() == made().arrays.keys()
    (tmp_path / "arrays.npz").unlink()
    assert Record.load(tmp_path).accuracy() == 50.125


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_json_lacks_are_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        made(times=replace(TIMES, seconds=value)).save(tmp_path)
    assert not (tmp_path / "record.json").exists()


def test_an_error_in_writing_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*arrays\.npz: No such file or directory"):
        made().save(tmp_path / "missing")


# --- values


def test_matrix_and_accuracy_default_to_the_memory_that_answers() -> None:
    record = made()
    assert record.matrix().tolist() == MATRIX
    assert record.matrix("stable").tolist() == [[1, 2], [3, 4]]
    assert record.matrix(setting="task_il").tolist() == [[95, 50], [80, 99]]
    assert record.accuracy() == 50.125
    assert record.accuracy(setting="task_il") == 89.5
    assert record.accuracy("stable") == 3.5
    with pytest.raises(UsageError, match=r"unknown memory of .* 'working_memory'"):
        record.matrix("working_memory")
    with pytest.raises(UsageError, match=r"unknown setting of .* 'class_li': did you mean 'class_il'"):
        record.accuracy(setting="class_li")
    other = made(inference="stable")
    assert (other.accuracy(), other.matrix().tolist()) == (3.5, [[1, 2], [3, 4]])


def test_runs_side_by_side_share_the_time_of_a_step() -> None:
    assert made().step_ms == pytest.approx(37.5)  # counted as alone where the number is unknown
    assert made(times=replace(TIMES, seconds=6.0, together=4)).step_ms == pytest.approx(37.5)


def test_the_repr_is_one_short_line() -> None:
    text = repr(made())
    assert "s-digits-er-50-seed0-abcdef" in text
    assert len(text) < 120
    assert "\n" not in text


def test_records_compare_by_identity() -> None:
    """Comparing arrays has no single truth value, so `in` must not look at them."""
    folder = STORED[-1].parent
    one, other = Record.load(folder), Record.load(folder)
    assert one in [other, one]
    assert one != other


# --- refused


def test_a_folder_without_a_record_is_no_finished_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match=f"{folder} holds no finished run: there is no record.json in it"):
            Record.load(folder)


def test_a_file_instead_of_the_folder_is_no_finished_run(tmp_path: Path) -> None:
    made().save(tmp_path)
    with pytest.raises(UsageError, match="holds no finished run"):
        Record.load(tmp_path / "record.json")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'"text"', b"null", b"\xff\xfe", b'{"name": "x", "and": "more"}']
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"record\.json is not a record of this version"):
        Record.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda v: v.update(more=1), "more"),
        (lambda v: v.pop("scores"), "scores"),
        (lambda v: v["experiment"].update(colour="red"), r"experiment\.colour"),
        (lambda v: v["experiment"].pop("method"), r"experiment\.method"),
        (lambda v: v["stream"].pop("tasks"), r"stream\.tasks"),
        (lambda v: v["device"].pop("name"), r"device\.name"),
        (lambda v: v["times"].pop("steps"), r"times\.steps"),
        (lambda v: v["code"].pop("sources"), r"code\.sources"),
    ],
)
def test_missing_and_unknown_keys_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], named: str
) -> None:
    edit(tmp_path, change)
    with pytest.raises(UsageError, match=rf"not a record of this version \(missing or unknown: {named}\)"):
        Record.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v.update(experiment=[]), "experiment.*expected an object"),
        (lambda v: v.update(name=7), "name is 7, expected str"),
        (lambda v: v.update(settings=[]), r"settings is \[\], expected dict"),
        (lambda v: v.update(scores={"working": 5}), "scores is .*, expected dict"),
        (lambda v: v["matrices"].update(working={"class_il": [["a"]]}), "matrices is .*, expected dict"),
        (lambda v: v["experiment"].update(seed="0"), r"experiment\.seed is '0', expected int"),
        (lambda v: v["experiment"].update(seed=True), r"experiment\.seed is True, expected int"),
        (lambda v: v["experiment"].update(buffer=2.5), r"experiment\.buffer is 2\.5, expected int \| None"),
        (lambda v: v["stream"].update(tasks=[0, 1]), r"stream\.tasks is \[0, 1\], expected list\[list\[int\]\]"),
        (lambda v: v["stream"].update(classes="ab"), r"stream\.classes is 'ab', expected list\[str\]"),
        (lambda v: v["times"].update(seconds=None), r"times\.seconds is None, expected float"),
        (lambda v: v.update(inference="other"), "no scores of its memory 'other'"),
        (lambda v: v.update(format=99), "its format is 99, expected 1"),
        (lambda v: v["times"].update(steps=0), "0 steps in"),
        (lambda v: v["times"].update(seconds=-1.0), "impossible"),
        (lambda v: v["times"].update(seconds=float("nan")), "it holds NaN"),
        (lambda v: v["stream"].update(tasks=[]), "other classes than its stream"),
        (lambda v: v["stream"].update(tasks=[[0, 99]]), "other classes than its stream"),
        (lambda v: v["matrices"]["working"].pop("class_il"), "incomplete"),
        (lambda v: v["matrices"]["working"].update(class_il=[[1.0], [2.0, 3.0]]), "does not have"),
        (lambda v: v["matrices"]["working"].update(class_il=[]), "does not have"),
        (lambda v: v["matrices"]["working"]["class_il"][0].__setitem__(0, 100.5), "not in percent"),
        (lambda v: v["matrices"]["working"]["class_il"][0].__setitem__(0, float("inf")), "it holds Infinity"),
        (lambda v: v["scores"]["working"]["class_il"].pop("accuracy"), "no accuracy"),
        (lambda v: v.update(scores={}), "no scores"),
        (
            lambda v: [v[k]["stable"].update(half_il=v[k]["stable"]["class_il"]) for k in ("matrices", "scores")],
            "half_il",
        ),
        (lambda v: v["scores"]["working"]["class_il"].update(last=1e300), "not in percent"),
        (lambda v: v["times"].update(seconds=1e300), "impossible"),
        (lambda v: v["times"].update(steps=10**30), "it holds 1000"),
        (lambda v: v["settings"].update(lr=10**400), "it holds 1000"),
    ],
)
def test_values_of_another_type_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    edit(tmp_path, change)
    with pytest.raises(UsageError, match=rf"not a record of this version \(.*{said}"):
        Record.load(tmp_path)


def test_a_number_that_no_float_holds_is_refused(tmp_path: Path) -> None:
    edit(tmp_path, lambda v: v["settings"].update(lr=12345.5))
    path = tmp_path / "record.json"
    path.write_text(path.read_text().replace("12345.5", "1e999"))
    with pytest.raises(UsageError, match="it holds 1e999"):
        Record.load(tmp_path)


@pytest.mark.parametrize(
    "harm",
    [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:70] + bytes([b[70] ^ 255]) + b[71:]],
    ids=["empty", "cut", "flipped"],
)
def test_damaged_arrays_are_an_error_that_names_the_file(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    made().save(tmp_path)
    path = tmp_path / "arrays.npz"
    path.write_bytes(harm(path.read_bytes()))
    record = Record.load(tmp_path)
    assert record.accuracy() == 50.125  # which is not lost
    try:
        len(record.arrays)
        said = "nothing"
    except Exception as e:  # numpy may leave the file open, which shows once the error is released
        said = f"{type(e).__name__}: {e}"
    assert re.match(r"(UsageError|RunError): .*arrays\.npz", said)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", '{"name": 1}', "[" * 100_000, "\ud800", '"' + "x" * 2**24 + '"'],
    ids=["empty", "list", "null", "cut", "little", "deep", "half a surrogate pair", "large"],
)
def test_any_other_text_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match="not a record of this version"):
        Record.load(tmp_path)


def test_a_record_that_is_a_folder_or_a_loop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.json").mkdir()
    with pytest.raises(UsageError, match="holds no finished run"):
        Record.load(tmp_path)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "record.json").symlink_to(tmp_path / "loop" / "record.json")
    with pytest.raises(UsageError, match="holds no finished run"):
        Record.load(tmp_path / "loop")


def test_arrays_that_unpack_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(arrays={"loss": np.zeros(10**6)}).save(tmp_path)
    monkeypatch.setattr(records, "LARGEST_UNPACKED", 10**6)
    with pytest.raises(UsageError, match=r"arrays\.npz"):
        len(Record.load(tmp_path).arrays)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("class_probability/working", np.zeros(3)),
        ("class_probability/working", np.zeros((4, 1))),
        ("reliability/working", np.zeros((15, 2))),
        ("class_accuracy/working", np.zeros((5, 4))),
        ("activity/working/2", np.zeros(4)),
        ("of a method/1", np.array(["a"] * 4)),
        ("loss", np.array(1.0)),
        ("loss", np.array([1.0, np.inf])),
        ("class_accuracy/working", np.ones((2, 4), bool)),
        ("class_accuracy/working", np.full((2, 4), 101.0)),
        ("class_probability/working", np.full(4, -0.1)),
        ("activity/working/1", np.full((4, 3), -1)),
        ("p_s/1", np.full((4, 3), 2.0)),
    ],
)
def test_arrays_of_another_shape_or_kind_are_refused(tmp_path: Path, name: str, array: np.ndarray) -> None:
    made(arrays={name: array}).save(tmp_path)
    with pytest.raises(UsageError, match=r"arrays\.npz is damaged"):
        len(Record.load(tmp_path).arrays)


def test_a_damaged_record_among_many_is_named_and_skipped(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        made(name=name).save(tmp_path / name)
    (tmp_path / "two" / "record.json").write_text("{}")
    with pytest.warns(RunWarning, match="skipped a run: .*two"):
        found = load_records(tmp_path)
    assert sorted(r.name for r in found) == ["one", "three"]
    with pytest.raises(UsageError, match="not a record"):
        load_records(tmp_path / "two")


# --- found


def test_find_returns_every_finished_run_below_a_folder_in_order(tmp_path: Path) -> None:
    for name in ("b", "a/deep", "c"):
        (tmp_path / name).mkdir(parents=True)
        made(name=name).save(tmp_path / name)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "progress.json").write_text("{}")
    assert records.find(tmp_path) == [tmp_path / "a" / "deep", tmp_path / "b", tmp_path / "c"]
    assert records.find(tmp_path / "b") == [tmp_path / "b"]
    assert records.find(tmp_path / "unfinished") == records.find(tmp_path / "missing") == []
