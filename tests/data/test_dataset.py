"""Data sets from arrays: layouts, dtypes, the split, and messages for invalid input."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from scommer.data import data_root, from_arrays, load
from scommer.errors import UsageError

RNG = np.random.default_rng(7)
PIXELS = RNG.integers(0, 256, (12, 5, 6, 3), dtype=np.uint8)  # NHWC
LABELS = np.array([0, 1, 2] * 4)


def numbered(count):
    """Images in which every pixel is the index of the image, to recognise them after the split."""
    return np.broadcast_to(np.arange(count, dtype=np.float32)[:, None, None], (count, 2, 2))


def test_layouts_give_the_same_pixels():
    nhwc = from_arrays(PIXELS, LABELS)
    nchw = from_arrays(np.moveaxis(PIXELS, 3, 1), LABELS)
    assert nhwc.image_shape == nchw.image_shape == (3, 5, 6)
    assert torch.equal(nhwc.train_images, nchw.train_images)
    assert torch.equal(nhwc.test_images, nchw.test_images)
    both = from_arrays(PIXELS, LABELS, PIXELS[::2], LABELS[::2])
    for n, row, column, channel in [(0, 0, 0, 0), (7, 4, 2, 1), (11, 3, 5, 2)]:
        assert both.train_images[n, channel, row, column] == PIXELS[n, row, column, channel]
    assert torch.equal(both.test_images, both.train_images[::2])


def test_images_without_channel_axis_are_grey():
    data = from_arrays(PIXELS[..., 0], LABELS, PIXELS[..., :1], LABELS)
    assert data.image_shape == (1, 5, 6)
    assert torch.equal(data.train_images, data.test_images)


@pytest.mark.parametrize("shape", [(4, 3, 8, 3), (4, 1, 8, 4), (4, 8, 8, 8), (4, 2, 8, 8)])
def test_an_ambiguous_layout_must_be_given(shape):
    images, labels = np.zeros(shape, dtype=np.uint8), np.array([0, 0, 1, 1])
    with pytest.raises(UsageError, match="layout='NHWC' or layout='NCHW'"):
        from_arrays(images, labels)
    _, a, b, c = shape
    assert from_arrays(images, labels, layout="NCHW").image_shape == (a, b, c)
    assert from_arrays(images, labels, layout="NHWC").image_shape == (c, a, b)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f8"])
def test_floats_become_float32(dtype):
    images = (PIXELS / 255).astype(dtype)
    data = from_arrays(images, LABELS, images, LABELS)
    assert data.train_images.dtype == torch.float32
    assert np.array_equal(data.train_images.numpy(), images.astype(np.float32).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", ["uint8", "int8", ">i2", "uint32", "int64", "uint64"])
def test_labels_of_any_integer_dtype(dtype):
    data = from_arrays(PIXELS, LABELS.astype(dtype), PIXELS, LABELS)
    assert data.train_labels.dtype == data.test_labels.dtype == torch.int64
    assert data.train_labels.tolist() == LABELS.tolist()


def test_tensors_are_accepted():
    expected = from_arrays(PIXELS.astype(np.float32), LABELS)
    images = torch.tensor(PIXELS, dtype=torch.bfloat16, requires_grad=True)  # bytes are exact in bfloat16
    data = from_arrays(images, torch.tensor(LABELS, dtype=torch.int32))
    assert torch.equal(data.train_images, expected.train_images)
    assert torch.equal(data.test_labels, expected.test_labels)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_arrays_are_copied(make):
    images, labels = make(np.moveaxis(PIXELS, 3, 1).tolist()), make(LABELS.tolist())
    images = images.astype(np.uint8) if make is np.array else images.to(torch.uint8)
    data = from_arrays(images, labels, images, labels)
    for tensor in (data.train_images, data.test_images, data.train_labels, data.test_labels):
        tensor.zero_()
    assert np.array_equal(np.asarray(images), np.moveaxis(PIXELS, 3, 1))
    assert np.array_equal(np.asarray(labels), LABELS)


def test_read_only_and_reversed_arrays_are_accepted():
    images, labels = PIXELS.copy(), LABELS.copy()
    images.flags.writeable = labels.flags.writeable = False
    data = from_arrays(images[::-1, :, ::-1], labels[::-1], images, labels)
    assert np.array_equal(data.train_images.numpy(), np.flip(PIXELS.transpose(0, 3, 1, 2), (0, 3)))


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5, 0.99])
def test_a_share_of_every_class_is_held_out(fraction):
    sizes = {0: 1, 1: 2, 2: 3, 3: 10, 4: 100}
    labels = np.random.default_rng(1).permutation(np.repeat(list(sizes), list(sizes.values())))
    data = from_arrays(numbered(len(labels)), labels, test_fraction=fraction)
    train, test = data.train_images[:, 0, 0, 0].int().tolist(), data.test_images[:, 0, 0, 0].int().tolist()
    assert sorted(train + test) == list(range(len(labels)))  # each image once
    assert train == sorted(train)  # in the original order
    assert data.train_labels.tolist() == labels[train].tolist()
    assert data.test_labels.tolist() == labels[test].tolist()
    held = Counter(data.test_labels.tolist())
    assert held[0] == 0
    for label, size in sizes.items():
        if size > 1:
            assert 1 <= held[label] <= size - 1
    assert held[4] == round(100 * fraction)


def test_the_split_depends_only_on_the_seed():
    def held(seed):
        return from_arrays(numbered(60), np.arange(60) % 3, seed=seed).test_images[:, 0, 0, 0].tolist()

    np.random.seed(0)  # noqa: NPY002 (the global generator must have no effect)
    first = held(3)
    np.random.seed(1)  # noqa: NPY002
    assert held(3) == first
    assert held(4) != first


def test_class_names_must_be_distinct():
    with pytest.raises(UsageError, match="3 class names were given, 2 of them distinct"):
        from_arrays(PIXELS, LABELS, class_names=["a", "b", "a"])


def test_class_names():
    assert from_arrays(PIXELS, LABELS).class_names == ("0", "1", "2")
    assert from_arrays(PIXELS, LABELS, class_names=np.array([3, 7, 8])).class_names == ("3", "7", "8")
    data = from_arrays(PIXELS, LABELS, class_names=["a", "b", "c", "unused"], name="mine")
    assert (data.num_classes, data.class_names[3], data.name) == (4, "unused", "mine")


def message(*args, **kwargs):
    with pytest.raises(UsageError) as caught:
        from_arrays(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_vectors_are_images_of_one_row():
    data = from_arrays(PIXELS.reshape(12, 90), LABELS, PIXELS.reshape(12, 90), LABELS)
    assert data.image_shape == (1, 1, 90)
    assert np.array_equal(data.train_images[:, 0, 0], PIXELS.reshape(12, 90))


def test_invalid_images_are_refused():
    assert "is a list" in message(PIXELS.tolist(), LABELS)
    assert "dtype int64" in message(PIXELS.astype(np.int64), LABELS)
    assert "dtype complex128" in message(PIXELS.astype(complex), LABELS)
    assert "shape (12, 5, 6, 3, 1)" in message(PIXELS[..., None], LABELS)
    assert "[N,D] for vectors" in message(PIXELS[:, 0, 0, 0], LABELS)
    assert "images is empty (shape (0, 5, 6, 3))" in message(PIXELS[:0], LABELS[:0])
    assert "empty" in message(PIXELS[:, :0], LABELS)
    assert "layout is 'HWC'" in message(PIXELS, LABELS, layout="HWC")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_images_must_be_finite(bad):
    images = PIXELS.astype(np.float64)
    images[3, 2, 1, 0] = bad
    assert "images contains NaN" in message(images, LABELS)
    assert "test_images contains NaN" in message(PIXELS / 1.0, LABELS, images, LABELS)


def test_invalid_labels_are_refused():
    assert "is a list" in message(PIXELS, LABELS.tolist())
    assert "shape (11,), expected (12,)" in message(PIXELS, LABELS[1:])
    assert "shape (12, 1), expected (12,)" in message(PIXELS, LABELS[:, None])
    assert "dtype float64" in message(PIXELS, LABELS / 1)
    assert "dtype bool" in message(PIXELS, LABELS > 0)
    assert "dtype <U1" in message(PIXELS, LABELS.astype("<U1"))
    assert "labels is empty" in message(PIXELS, LABELS[:0])
    assert "range from -1 to 1" in message(PIXELS, LABELS - 1)
    assert "class 0 has no images" in message(PIXELS, LABELS + 1)
    assert "class 1 has no images" in message(PIXELS, LABELS * 2**61)
    assert "number the classes from 0" in message(PIXELS, LABELS.astype(np.uint64) + np.uint64(2**63))
    assert "contain class 2, but there are 2 classes" in message(PIXELS, LABELS, class_names=["a", "b"])


def test_invalid_test_images_are_refused():
    assert "only one of test_images and test_labels" in message(PIXELS, LABELS, PIXELS)
    assert "only one of test_images and test_labels" in message(PIXELS, LABELS, None, LABELS)
    assert "test_labels has shape (12,), expected (6,)" in message(PIXELS, LABELS, PIXELS[:6], LABELS)
    assert "test_labels contain class 3" in message(PIXELS, LABELS, PIXELS, LABELS + 1)
    assert "class 3, which has no training images" in message(PIXELS, LABELS, PIXELS, LABELS + 1, class_names="abcd")
    assert "the same dtype and shape" in message(PIXELS, LABELS, PIXELS[:, :, :5], LABELS)
    assert "the same dtype and shape" in message(PIXELS, LABELS, PIXELS / 255, LABELS)


def test_invalid_test_fractions_are_refused():
    for fraction in (1, -0.5, 20, float("nan")):
        assert f"test_fraction is {fraction}" in message(PIXELS, LABELS, test_fraction=fraction)
    assert "single image" in message(PIXELS[:3], LABELS[:3])


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("SCOMMER_DATA", "")
    assert data_root(None) == tmp_path / ".cache" / "scommer"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root(None) == Path("/cache/scommer")
    monkeypatch.setenv("SCOMMER_DATA", "~/sets")
    assert data_root(None) == tmp_path / "sets"
    assert data_root(Path("here")) == Path("here")


def test_unknown_data_set():
    with pytest.raises(UsageError, match="unknown data set 'cifar11': did you mean 'cifar1"):
        load("cifar11")


def test_import_does_not_import_scikit_learn():
    code = "import scommer.data, sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
