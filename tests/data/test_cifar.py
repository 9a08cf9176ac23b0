"""CIFAR files are read correctly, and damaged or hostile ones are refused."""

import builtins
import hashlib
import os
import pickle
import shutil

import numpy as np
import pytest
import torch

from scommer.data import cifar as module, load
from scommer.data.cifar import MD5, load_cifar, read_pickle
from scommer.data.fetch import SOURCES
from scommer.errors import UsageError


@pytest.fixture(scope="module")
def cifar10(cifar):
    return load("cifar10", cifar("cifar10"))


@pytest.fixture(scope="module")
def cifar100(cifar):
    return load("cifar100", cifar("cifar100"))


def test_cifar10(cifar10):
    assert (cifar10.name, cifar10.image_shape, cifar10.num_classes) == ("cifar10", (3, 32, 32), 10)
    assert " ".join(cifar10.class_names) == "airplane automobile bird cat deer dog frog horse ship truck"
    assert cifar10.train_images.dtype == cifar10.test_images.dtype == torch.uint8
    assert torch.bincount(cifar10.train_labels).tolist() == [5000] * 10
    assert torch.bincount(cifar10.test_labels).tolist() == [1000] * 10
    assert cifar10.class_names[cifar10.train_labels[0]] == "frog"
    assert cifar10.class_names[cifar10.test_labels[0]] == "cat"


def test_cifar10_pixel_statistics(cifar10):
    pixels = cifar10.train_images.transpose(0, 1).reshape(3, -1)
    for channel, mean, std in zip(pixels, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), strict=True):
        counts = torch.bincount(channel, minlength=256).double()
        values = torch.arange(256).double() / 255
        found = (counts * values).sum() / counts.sum()
        spread = ((counts * (values - found) ** 2).sum() / counts.sum()).sqrt()
        assert found == pytest.approx(mean, abs=1e-4)
        assert spread == pytest.approx(std, abs=1e-4)


def test_cifar10_pixels_are_the_bytes_of_the_file(cifar, cifar10):
    raw = (cifar("cifar10") / "cifar-10-batches-py" / "data_batch_2").read_bytes()
    size = 10_000 * 3072
    start = raw.index(b"T" + size.to_bytes(4, "little")) + 5  # pickle's instruction for a string of that size
    expected = np.frombuffer(raw, np.uint8, size, start)
    assert np.array_equal(cifar10.train_images[10_000:20_000].numpy().ravel(), expected)


def test_cifar100(cifar100):
    assert (cifar100.image_shape, cifar100.num_classes) == ((3, 32, 32), 100)
    assert cifar100.class_names == tuple(sorted(cifar100.class_names))  # the published order is alphabetic
    assert (cifar100.class_names[0], cifar100.class_names[99]) == ("apple", "worm")
    assert torch.bincount(cifar100.train_labels).tolist() == [500] * 100
    assert torch.bincount(cifar100.test_labels).tolist() == [100] * 100
    assert cifar100.class_names[cifar100.train_labels[0]] == "cattle"


def test_small_files_in_the_official_format(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    content = {
        "train": {b"data": rng.integers(0, 256, (6, 3072), dtype=np.uint8), b"fine_labels": [2, 1, 0] * 2},
        "test": {b"data": rng.integers(0, 256, (2, 3072), dtype=np.uint8), b"fine_labels": [1, 2]},
        "meta": {b"fine_label_names": [b"ant", b"bee", b"cow"], b"coarse_label_names": [b"animal"]},
    }
    for name, values in content.items():
        (folder / name).write_bytes(pickle.dumps(values, protocol=4))
        monkeypatch.setitem(MD5["cifar100"], name, hashlib.md5((folder / name).read_bytes()).hexdigest())
    data = load("cifar100", tmp_path)
    assert data.class_names == ("ant", "bee", "cow")
    assert data.train_labels.tolist() == [2, 1, 0, 2, 1, 0]
    assert data.test_labels.tolist() == [1, 2]
    for row, column, channel in [(0, 0, 0), (5, 7, 1), (31, 30, 2)]:
        position = channel * 1024 + row * 32 + column
        assert data.test_images[1, channel, row, column] == content["test"][b"data"][1, position]


def refused(call, *args):
    with pytest.raises(UsageError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_folder(tmp_path):
    message = refused(load_cifar, "cifar10", tmp_path)
    assert str(tmp_path / "cifar-10-batches-py") in message
    assert "run 'scommer data get cifar10'" in message
    assert "--data or SCOMMER_DATA to the folder that contains cifar-10-batches-py" in message
    assert "'cifar1000': did you mean 'cifar100'?" in refused(load_cifar, "cifar1000", tmp_path)


def test_missing_and_damaged_files(tmp_path, cifar):
    folder = tmp_path / "cifar-100-python"
    shutil.copytree(cifar("cifar100") / folder.name, folder, ignore=lambda *_: ["train"])
    assert f"no file {folder / 'train'}: delete {folder}" in refused(load_cifar, "cifar100", tmp_path)

    (folder / "train").symlink_to(cifar("cifar100") / folder.name / "train")
    damaged = bytearray((folder / "test").read_bytes())
    damaged[-1000] ^= 1  # a single bit
    (folder / "test").write_bytes(damaged)
    message = refused(load_cifar, "cifar100", tmp_path)
    assert f"{folder / 'test'} is damaged" in message
    assert "run 'scommer data get cifar100'" in message


def test_md5_sums_are_checked_before_any_file_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in MD5["cifar100"]:
        (folder / name).write_bytes(b"")
    monkeypatch.setattr(module, "read_pickle", lambda path: pytest.fail("read"))
    assert "is damaged" in refused(load_cifar, "cifar100", tmp_path)


def test_unreadable_file(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").touch()

    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "md5_of", denied)
    assert f"cannot read {folder / 'train'} (Permission denied)" in refused(load_cifar, "cifar100", tmp_path)


@pytest.mark.parametrize("code", ["u1", "i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_read_pickle_returns_arrays_of_numbers(tmp_path, code, order):
    array = np.array(np.arange(24).reshape(2, 3, 4) - (0 if "u" in code else 9), dtype=code, order=order)
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps({"a": array, "b": [1, "x", None, 2.5, b"y"]}, protocol=4))
    content = read_pickle(path)
    assert np.array_equal(content["a"], array)
    assert content["a"].dtype == array.dtype
    assert content["a"].flags.writeable
    assert content["b"] == [1, "x", None, 2.5, b"y"]


class Hostile:
    """Pickles to a call that creates a file when unpickled."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


class Restored(Hostile):
    """Pickles to a harmless call whose result then receives a hostile state."""

    def __init__(self, state, call, *args):
        super().__init__(call, *args)
        self.state = state

    def __reduce__(self):
        return self.call, self.args, self.state


def hostile_contents(marker):
    touch = f"open({str(marker)!r}, 'w').close()"
    system = Hostile(os.system, f"touch {marker}")
    evaluate = Hostile(builtins.eval, touch)
    rebuild = np.empty(0).__reduce__()[0]
    return {
        "os.system": system,
        "eval": {b"data": evaluate},
        "exec": {b"data": Hostile(builtins.exec, touch)},
        "nested": {b"data": [({"x": evaluate},)]},
        "as a key": {evaluate: 1},
        "object array": {b"data": np.array([system, 1], dtype=object)},
        "in the state of an array": {
            b"data": Restored((1, (1,), np.dtype("u1"), False, evaluate), rebuild, np.ndarray, (0,), b"b")
        },
        "in a dtype": {b"data": Restored((3, "|", None, None, None, -1, -1, evaluate), np.dtype, "u1", 0, 1)},
        "getattr": {b"data": Hostile(getattr, evaluate, "x")},
    }


CASES = list(hostile_contents("x"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_hostile_pickles_execute_nothing(tmp_path, case, protocol):
    marker, path = tmp_path / "marker", tmp_path / "file"
    path.write_bytes(pickle.dumps(hostile_contents(marker)[case], protocol=protocol))
    message = refused(read_pickle, path)
    assert str(path) in message
    assert not marker.exists()


@pytest.mark.parametrize("case", ["os.system", "eval", "nested", "object array"])
def test_the_hostile_pickles_would_execute_code(tmp_path, case):
    marker = tmp_path / "marker"
    pickle.loads(pickle.dumps(hostile_contents(marker)[case], protocol=4))
    assert marker.exists()


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, 1]),
        np.array(["a"]),
        np.array([b"a"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.zeros(2, dtype=[("a", "u1")]),
        np.array([1j]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_of_other_dtypes_are_refused(tmp_path, array):
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps({"a": array}, protocol=4))
    assert "expected numbers" in refused(read_pickle, path)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no pickle",
        b"\x80\x04}",  # truncated
        pickle.dumps([1, 2]),  # not a dict
        b"}(Vx\ncnumpy.core.multiarray\n_reconstruct\n)Ru.",  # an array that never gets its content
        b"}(Vx\ncnumpy\ndtype\n(Vu1\ntR(I3\nV|\n(Vu1\n(I2\nttNNI-1\nI-1\nI0\ntbu.",  # a dtype of pairs
        b"}(Vx\ncnumpy\nndarray\n)R(I1\n(I1\ntcnumpy\ndtype\n(Vu1\ntRI00\n(I7\nltbu.",  # an array of a list
        b"cnumpy\nnothing\n.",
        b"\x80\x04\x8c\x03a\nb\x8c\x04\x1b[2J\x93.",  # a name with a line break and a control sequence
        b"\x82\x01.",  # an extension code
        b"Vid\nQ.",  # a persistent id
    ],
)
def test_malformed_pickles_are_refused(tmp_path, raw):
    path = tmp_path / "file"
    path.write_bytes(raw)
    message = refused(read_pickle, path)
    assert str(path) in message
    assert message.isprintable()


@pytest.mark.parametrize("name", [b"numpy\ndtype", b"numpy\nndarray", b"numpy.core.multiarray\n_reconstruct"])
@pytest.mark.parametrize("state", [b"(dV__setstate__\nI1\ns", b"(N(dV__setstate__\nI1\nst"])
def test_a_pickle_cannot_change_the_stand_ins(tmp_path, name, state):
    path = tmp_path / "file"
    path.write_bytes(b"}(Vx\nc" + name + b"\n" + state + b"bu.")  # sets attributes of the named class
    refused(read_pickle, path)
    path.write_bytes(pickle.dumps({"a": np.arange(3)}, protocol=4))
    assert read_pickle(path)["a"].tolist() == [0, 1, 2]


def test_missing_pickle(tmp_path):
    assert "No such file" in refused(read_pickle, tmp_path / "absent")


def test_every_source_can_be_read():
    assert SOURCES.keys() == MD5.keys()
