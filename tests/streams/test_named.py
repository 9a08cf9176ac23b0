"""Every named stream against its definition, written a second time in plain NumPy: each index of each task.

CIFAR's stand-ins have its number of images of each class, in no order, as images of one pixel.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from scommer import data
from scommer.data import Dataset, from_arrays
from scommer.streams import STREAMS, Stream, class_il, gcil, load

Tasks = list[tuple[list[int], list[int], tuple[int, ...]]]  # training images, test images and classes of each

SPLITS = {"s-digits": 5, "s-cifar10": 5, "s-cifar100": 5, "s-cifar100-10": 10, "s-cifar100-20": 20}
DRAWN = {"gcil-uniform": 1.0, "gcil-longtail": 0.984}  # the weight of a class relative to the one before it
RESULTS = Path(__file__).parents[2] / "results"


# --- the definitions, by loops


def held_out(labels: np.ndarray, share: float) -> list[int]:
    """The images of each class that a split by seed 0 holds out."""
    rng, found = np.random.default_rng(0), []
    for c in sorted(set(labels.tolist())):
        mine = rng.permutation([i for i, label in enumerate(labels.tolist()) if label == c]).tolist()
        found += mine[: round(share * len(mine))]
    return sorted(found)


def by_class(train: np.ndarray, test: np.ndarray, order: list[int], tasks: int) -> Tasks:
    each, made = len(order) // tasks, []
    for t in range(tasks):
        classes = order[t * each : (t + 1) * each]
        parts = [[i for i, c in enumerate(labels.tolist()) if c in classes] for labels in (train, test)]
        made.append((*parts, tuple(classes)))
    return made


def drawn(
    train: np.ndarray, test: np.ndarray, order: list[int], ratio: float, tasks: int, samples: int, most: int, seed: int
) -> Tasks:
    """GCIL: a uniform number of the classes left, images by their weights, test images of all classes seen."""
    rng, made, seen = np.random.default_rng(seed), [], set()
    left = {c: [i for i, label in enumerate(train.tolist()) if label == c] for c in range(len(order))}
    for _ in range(tasks):
        there = [c for c in sorted(left) if left[c]]
        count = rng.integers(1, min(most, len(there)) + 1)
        chosen = sorted(rng.choice(there, count, replace=False).tolist())
        weight = np.array([ratio ** order.index(c) for c in chosen])
        numbers: list[int] = []
        while set(numbers) != set(range(len(chosen))):
            numbers = rng.choice(len(chosen), samples, p=weight / weight.sum()).tolist()
        images = []
        for n, c in enumerate(chosen):
            taken = rng.choice(left[c], min(numbers.count(n), len(left[c])), replace=False).tolist()
            left[c] = sorted(set(left[c]) - set(taken))
            images += taken
        seen |= set(chosen)
        made.append((images, [i for i, c in enumerate(test.tolist()) if c in seen], tuple(chosen)))
    return made


def defined(name: str, train: np.ndarray, test: np.ndarray) -> Tasks:
    order = list(range(1 + max(train.tolist())))
    if name in SPLITS:
        return by_class(train, test, order, SPLITS[name])
    return drawn(train, test, order, DRAWN[name], tasks=20, samples=1000, most=50, seed=1993)


def found(stream: Stream) -> Tasks:
    return [(task.train.tolist(), task.test.tolist(), task.classes) for task in stream.tasks]


# --- the streams


def stand_in(classes: int, each: int, test_each: int) -> Dataset:
    rng = np.random.default_rng(classes)
    parts = []
    for n in (each, test_each):
        labels = rng.permutation(np.repeat(np.arange(classes), n))
        parts += [rng.integers(0, 256, (len(labels), 1, 1), dtype=np.uint8), labels]
    return from_arrays(*parts)


@pytest.fixture(scope="module")
def sources() -> dict[str, Dataset]:
    return {"cifar10": stand_in(10, 5000, 1000), "cifar100": stand_in(100, 500, 100)}


@pytest.fixture
def _stand_ins(sources: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, made in sources.items():
        monkeypatch.setitem(data.DATASETS, name, lambda root, made=made: made)


def test_every_named_stream_is_held_to_a_definition() -> None:
    assert {*SPLITS, *DRAWN} <= set(STREAMS)
    assert set(list(STREAMS)[:7]) == {*SPLITS, *DRAWN}  # those of the package come first


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize("name", [n for n in (*SPLITS, *DRAWN) if n != "s-digits"])
def test_a_named_stream_of_cifar_is_the_one_defined(name: str, sources: dict[str, Dataset]) -> None:
    source = sources["cifar10" if name == "s-cifar10" else "cifar100"]
    stream = load(name)
    expected = defined(name, source.train_labels.numpy(), source.test_labels.numpy())
    assert (stream.name, stream.kind) == (name, "class-il" if name in SPLITS else "gcil")
    assert found(stream) == expected
    counts = [np.bincount(source.train_labels[task.train], minlength=source.num_classes) for task in stream.tasks]
    if name in SPLITS:
        assert {n for row in counts for n in row.tolist()} == {0, 50_000 // source.num_classes}
    assert all(set(np.flatnonzero(row)) == set(t.classes) for row, t in zip(counts, stream.tasks, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_s_digits_is_the_stream_defined(share: float) -> None:
    digits = load_digits()
    labels, levels = digits.target, digits.images.astype(int)
    test = held_out(labels, 0.2)
    train = [i for i in range(len(labels)) if i not in set(test)]
    if share:  # then a part of the training images takes the place of the test images
        again = held_out(labels[train], share)
        train, test = [train[i] for i in range(len(train)) if i not in set(again)], [train[i] for i in again]
    stream = load("s-digits", validation=share)
    assert stream.validation == share
    assert found(stream) == defined("s-digits", labels[train], labels[test])
    for images, mine in ((stream.data.train_images, train), (stream.data.test_images, test)):
        difference = images[:, 0].double().numpy() - levels[mine] * 255 / 16
        assert np.abs(difference).max() <= 0.5  # the nearest byte


# --- orders which are not their own inverse

ORDER = [1, 2, 3, 4, 5, 0]


def test_a_listed_order_gives_each_class_its_position() -> None:
    small = stand_in(6, 30, 4)
    train, test = small.train_labels.numpy(), small.test_labels.numpy()
    assert found(class_il(small, 3, order=ORDER)) == by_class(train, test, ORDER, 3)
    stream = gcil(small, "longtail", tasks=3, samples=40, max_classes=6, decay=0.5, order=ORDER, seed=4)
    assert found(stream) == drawn(train, test, ORDER, 0.5, tasks=3, samples=40, most=6, seed=4)


def test_a_shuffled_order_is_the_permutation_of_its_seed() -> None:
    small = stand_in(6, 30, 4)
    order = np.random.default_rng(2).permutation(6).tolist()
    assert [order[c] for c in order] != list(range(6))
    assert [c for task in class_il(small, 3, order="shuffled", seed=2).tasks for c in task.classes] == order


# --- the streams that the committed records learned


def fingerprint(kind: str, source: Dataset, tasks: Tasks) -> str:
    """The hash that a record holds."""
    h = hashlib.sha256(f"{kind}/{source.num_classes}".encode())
    for images in (source.train_images.numpy(), source.test_images.numpy()):
        h.update(f"torch.{images.dtype}/{images.shape}".encode() + images.tobytes())
    for train, test, classes in tasks:
        rows: list[tuple[Any, Any]] = [(train, source.train_labels), (test, source.test_labels), (classes, None)]
        for indices, labels in rows:
            h.update(f"/{len(indices)}:".encode() + np.array(indices, "<i8").tobytes())
            h.update(b"" if labels is None else labels.numpy()[list(indices)].astype("<i8").tobytes())
    return h.hexdigest()[:16]


@pytest.fixture(scope="module")
def official(cifar: Callable[[str], Path]) -> Callable[[str], Dataset]:
    """Return a function that reads official files, each once."""
    return cache(lambda name: data.load(name, cifar(name)))


@pytest.mark.parametrize("name", ["s-cifar10", "gcil-uniform", "gcil-longtail"])
def test_committed_records_are_of_the_streams_defined(name: str, official: Callable[[str], Dataset]) -> None:
    source = official("cifar10" if name == "s-cifar10" else "cifar100")
    tasks = defined(name, source.train_labels.numpy(), source.test_labels.numpy())
    records = [json.loads((folder / "record.json").read_text()) for folder in RESULTS.glob(f"{name}-*-seed0-*")]
    held = {r["stream"]["fingerprint"] for r in records if r["stream"]["name"] == name}
    assert held == {fingerprint("class-il" if name in SPLITS else "gcil", source, tasks)}
