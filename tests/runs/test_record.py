import json
import re
from pathlib import Path

import numpy as np
import pytest

from scommer.errors import RunError, UsageError
from scommer.runs import record as records
from scommer.runs.record import Record

MATRIX = [[90.0, 10.5], [30.25, 70.0]]


def made(**changes) -> Record:
    plain = {
        "name": "s-digits-er-50-seed0-abcdef",
        "experiment": {"stream": "s-digits", "method": "er", "buffer": 50, "seed": 0},
        "settings": {"lr": 0.1, "active": [0.9, 0.8], "sparse": False, "width": None, "network": "small"},
        "stream": {"name": "s-digits", "kind": "class-il", "classes": ["null", "eins", "zwei", "drei – ü"]},
        "inference": "working",
        "matrices": {"working": {"class_il": MATRIX, "task_il": [[95.0, 50.0], [80.0, 99.0]]},
                     "stable": {"class_il": [[1.0, 2.0], [3.0, 4.0]]}},
        "untrained": {"class_il": [10.0, 12.0]},
        "scores": {"working": {"class_il": {"accuracy": 50.125}, "task_il": {"accuracy": 89.5}},
                   "stable": {"class_il": {"accuracy": 3.5}}},
        "code": {"commit": "0" * 40, "dirty": False, "sources": "ab"},
        "versions": {"python": "3.11"},
        "device": {"type": "cpu", "threads": 1},
        "times": {"seconds": 1.5, "steps": 40},
        "arrays": {
            "loss": np.array([1.5, 0.1 + 0.2]),
            "activity/working/1": np.arange(6, dtype=np.int32).reshape(2, 3),
            "p_s/1": np.array([[0.1]], dtype=np.float32),
            "none": np.zeros((0, 4)),
            "flag": np.array(True),
        },
    }  # fmt: skip
    return Record(**plain | changes)


def strict_json(text):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


# --- save and load


def test_a_record_comes_back_as_it_was(tmp_path):
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


def test_a_record_is_two_files_and_nothing_else(tmp_path):
    made().save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arrays.npz", "record.json"]
    plain = strict_json((tmp_path / "record.json").read_text())
    assert plain["matrices"]["working"]["class_il"] == MATRIX
    assert plain["format"] == 1
    assert "arrays" not in plain


def test_runs_side_by_side_share_the_time_of_a_step():
    assert made().step_ms == pytest.approx(37.5)  # alone, as far as an early record tells
    assert made(times={"seconds": 6.0, "steps": 40, "together": 4}).step_ms == pytest.approx(37.5)


def test_saving_again_replaces(tmp_path):
    made().save(tmp_path)
    made(name="other", arrays={}).save(tmp_path)
    again = Record.load(tmp_path)
    assert again.name == "other"
    assert again.arrays == {}


def test_a_record_without_its_arrays_can_be_read(tmp_path):
    made().save(tmp_path)
    assert Record.load(str(tmp_path)).arrays.keys() == made().arrays.keys()
    (tmp_path / "arrays.npz").unlink()
    assert Record.load(tmp_path).accuracy() == 50.125


def test_matrix_and_accuracy_are_of_the_memory_that_answers_unless_named():
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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_written_is_json_or_nothing(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        made(times={"seconds": value}).save(tmp_path)
    assert not (tmp_path / "record.json").exists()


def test_a_record_that_cannot_be_written_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(RunError, match=r"cannot write .*arrays\.npz: No such file or directory"):
        made().save(tmp_path / "missing")


def test_a_folder_without_a_record_is_no_finished_run(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match=f"{folder} holds no finished run: there is no record.json in it"):
            Record.load(folder)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'"text"', b"null", b"\xff\xfe", b'{"name": "x", "and": "more"}']
)
def test_a_file_that_is_no_record_is_refused(tmp_path, content):
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"record\.json is not a record of this version"):
        Record.load(tmp_path)


@pytest.mark.parametrize("change", [{"more": 1}, {"scores": None}])
def test_fields_too_many_or_too_few_are_refused(tmp_path, change):
    made().save(tmp_path)
    plain = json.loads((tmp_path / "record.json").read_text()) | change
    (tmp_path / "record.json").write_text(json.dumps({k: v for k, v in plain.items() if v is not None}))
    with pytest.raises(UsageError, match=r"not a record of this version.*(more|scores)"):
        Record.load(tmp_path)


def test_a_record_of_another_format_is_refused(tmp_path):
    made(format=99).save(tmp_path)
    with pytest.raises(UsageError, match="not a record of this version"):
        Record.load(tmp_path)


def test_a_file_in_place_of_the_folder_is_no_finished_run(tmp_path):
    made().save(tmp_path)
    with pytest.raises(UsageError, match="holds no finished run"):
        Record.load(tmp_path / "record.json")  # an easy slip: `scommer show runs/x/record.json`


@pytest.mark.parametrize(
    "harm",
    [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:70] + bytes([b[70] ^ 255]) + b[71:]],
    ids=["empty", "cut", "flipped"],
)
def test_damaged_arrays_are_an_error_that_names_the_file(tmp_path, harm):
    made().save(tmp_path)
    path = tmp_path / "arrays.npz"
    path.write_bytes(harm(path.read_bytes()))
    record = Record.load(tmp_path)
    assert record.accuracy() == 50.125  # which is not lost
    try:
        len(record.arrays)
        said = "nothing"
    except Exception as e:  # numpy may leave the file open: that shows once the error is let go
        said = f"{type(e).__name__}: {e}"
    assert re.match(r"(UsageError|RunError): .*arrays\.npz", said)


def test_find_gives_every_finished_run_below_a_folder_in_order(tmp_path):
    for name in ("b", "a/deep", "c"):
        (tmp_path / name).mkdir(parents=True)
        made(name=name).save(tmp_path / name)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "progress.json").write_text("{}")
    assert records.find(tmp_path) == [tmp_path / "a" / "deep", tmp_path / "b", tmp_path / "c"]
    assert records.find(tmp_path / "b") == [tmp_path / "b"]
    assert records.find(tmp_path / "unfinished") == records.find(tmp_path / "missing") == []


def test_records_are_told_apart_without_a_look_at_their_arrays() -> None:
    folder = next((Path(__file__).parents[2] / "docs" / "records").iterdir())
    one, other = Record.load(folder), Record.load(folder)
    assert one in [other, one]
    assert one != other
