"""GCIL against the seven points of its definition: single streams by counting, many streams by statistics."""

import random
import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch

from scommer import data
from scommer.data import Dataset, from_arrays
from scommer.errors import UsageError
from scommer.streams import gcil, load

WEIGHTS = ("uniform", "longtail")


def source(counts, test_counts=None) -> Dataset:
    """A data set of one-pixel images, with this many of each class."""
    parts = []
    for n in (counts, test_counts or [2] * len(counts)):
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), n))
        parts += [np.zeros((len(labels), 1, 1), dtype=np.uint8), labels]
    return from_arrays(*parts)


def check(stream, samples, max_classes):
    """Check each task of a stream against the definition, by counting."""
    train, test = stream.data.train_labels.tolist(), stream.data.test_labels.tolist()
    left, used, seen = Counter(train), set(), set()
    for task in stream.tasks:
        drawn = Counter(train[i] for i in task.train.tolist())
        available = {c for c, n in left.items() if n}  # 1
        assert 1 <= len(task.classes) <= min(max_classes, len(available))  # 2
        assert len(set(task.classes)) == len(task.classes)  # 3
        assert set(task.classes) <= available
        assert set(drawn) == set(task.classes)  # 5: every chosen class occurs, and no other
        assert drawn.total() <= samples
        left -= drawn
        if drawn.total() < samples:  # 6: a task is smaller only if one of its classes ran out
            assert any(left[c] == 0 for c in task.classes)
        assert not used & set(task.train.tolist())  # 7
        used |= set(task.train.tolist())
        assert len(set(task.train.tolist())) == len(task.train)
        seen |= set(task.classes)
        assert sorted(task.test.tolist()) == [i for i, label in enumerate(test) if label in seen]
    return left


def chi_square(observed, expected):
    """How far Pearson's statistic is from its mean, in standard deviations."""
    observed, expected = np.asarray(observed, dtype=float), np.asarray(expected, dtype=float)
    dof = len(observed) - 1
    return (((observed - expected) ** 2 / expected).sum() - dof) / np.sqrt(2 * dof)


# --- single streams


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", range(8))
def test_small_streams_follow_the_definition(weights, seed):
    uneven = source([30, 3, 50, 1, 80, 7, 20, 20, 60, 90, 5, 40])
    stream = gcil(uneven, weights, tasks=7, samples=40, max_classes=5, decay=0.8, seed=seed)
    check(stream, samples=40, max_classes=5)
    plenty = source([20] * 6)
    left = check(gcil(plenty, weights, tasks=3, samples=60, max_classes=50, seed=seed), samples=60, max_classes=50)
    assert sum(left.values()) < 120 - 3  # something was learned in each task


@pytest.fixture(scope="module")
def cifar100(cifar):
    return data.load("cifar100", cifar("cifar100"))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_streams_of_cifar100_follow_the_definition(cifar100, weights, seed):
    stream = gcil(cifar100, weights) if seed is None else gcil(cifar100, weights, seed=seed)
    assert len(stream.tasks) == 20
    check(stream, samples=1000, max_classes=50)
    sizes = [len(task.classes) for task in stream.tasks]
    assert max(sizes) > 25  # of 1 … 50: the chance that all 20 draws are in one half is 1 in a million
    assert min(sizes) < 26
    seen = {c for task in stream.tasks for c in task.classes}
    assert len(stream.tasks[-1].test) == 100 * len(seen)


def test_named_streams_are_the_papers(cifar, cifar100):
    stream = load("gcil-longtail", cifar("cifar100"))
    assert (stream.name, stream.kind) == ("gcil-longtail", "gcil")
    papers = gcil(cifar100, "longtail", tasks=20, samples=1000, max_classes=50, decay=0.984, seed=1993)
    assert stream.fingerprint == papers.fingerprint
    assert gcil(cifar100).fingerprint == gcil(cifar100, "uniform", seed=1993).fingerprint
    assert stream.fingerprint != gcil(cifar100, "uniform").fingerprint


def test_a_task_of_one_class_has_all_its_500_images(cifar100):
    stream = gcil(cifar100, max_classes=1)
    assert [len(task.train) for task in stream.tasks] == [500] * 20
    assert len({task.classes for task in stream.tasks}) == 20  # a class without images left does not recur


def test_a_stream_is_determined_by_its_seed():
    small = source([20] * 6)
    prints = [gcil(small, tasks=3, samples=20, seed=seed).fingerprint for seed in range(20)]
    assert prints == [gcil(small, tasks=3, samples=20, seed=seed).fingerprint for seed in range(20)]
    assert len(set(prints)) == 20


def test_global_generators_are_neither_used_nor_changed():
    def states():
        return [np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), random.getstate()]  # noqa: NPY002

    before = states()
    first = gcil(source([20] * 6), tasks=3, samples=20).fingerprint
    assert states() == before
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    assert gcil(source([20] * 6), tasks=3, samples=20).fingerprint == first


def test_arrays_become_a_stream_in_one_call():
    labels = np.arange(100) % 5
    stream = gcil((np.zeros((100, 8, 8, 3), dtype=np.uint8), labels), tasks=3, samples=10)
    assert stream.kind == "gcil"
    assert len(stream.data.train_labels) == 80  # a fifth is held out
    check(stream, samples=10, max_classes=50)


def test_validation_replaces_the_test_images_by_training_images():
    images = np.arange(60, dtype=np.float32)[:, None, None]
    stream = gcil((images, np.arange(60) % 3, images + 1000, np.arange(60) % 3), tasks=2, samples=8, validation=0.25)
    train, held_out = (set(x.flatten().int().tolist()) for x in (stream.data.train_images, stream.data.test_images))
    assert train | held_out == set(range(60))
    assert Counter(i % 3 for i in held_out) == {0: 5, 1: 5, 2: 5}
    check(stream, samples=8, max_classes=50)


# --- errors


def test_running_out_of_images_is_an_error_that_names_the_task():
    small = source([5, 4, 3])
    with pytest.raises(UsageError, match="ran out after") as caught:
        gcil(small, tasks=50, samples=4)
    after = int(re.search(r"after (\d+) of 50 tasks", str(caught.value)).group(1))
    stream = gcil(small, tasks=after, samples=4)
    assert sorted(i for task in stream.tasks for i in task.train.tolist()) == list(range(12))


@pytest.mark.parametrize(
    "wrong",
    [
        {"tasks": 0}, {"samples": 0}, {"max_classes": 0}, {"decay": 0.0}, {"decay": 1.1}, {"decay": float("nan")},
    ],
)  # fmt: skip
def test_invalid_numbers_are_refused(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} = {next(iter(wrong.values()))}"):
        gcil(source([5, 5]), **wrong)


def test_classes_that_cannot_all_be_drawn_are_an_error():
    sizes, refusals = [], []
    for seed in range(4):
        try:
            stream = gcil(source([5, 5]), "longtail", tasks=1, samples=2, decay=1e-9, seed=seed)
            sizes.append(len(stream.tasks[0].classes))
        except UsageError as e:
            refusals.append(str(e))
    assert set(sizes) == {1}
    assert {text.split(":")[0] for text in refusals} == {"2 samples do not cover all of 2 classes"}


def test_unknown_weights_are_refused():
    with pytest.raises(UsageError, match="unifrom"):
        gcil(source([5, 5]), "unifrom", tasks=1, samples=2)


def test_every_task_has_test_images():
    for seed in range(20):
        try:
            stream = gcil(source([9, 9], test_counts=[0, 2]), tasks=1, samples=2, seed=seed)
        except UsageError:
            continue
        assert all(len(task.test) for task in stream.tasks)


# --- distributions over many streams


@pytest.mark.parametrize(("classes", "max_classes", "most"), [(6, 4, 4), (6, 50, 6), (3, 3, 3)])
def test_the_number_of_classes_is_uniform(classes, max_classes, most):
    small, n = source([6] * classes), 1200
    sizes = Counter(
        len(gcil(small, tasks=1, samples=12, max_classes=max_classes, seed=s).tasks[0].classes) for s in range(n)
    )
    assert set(sizes) == set(range(1, most + 1))
    assert abs(chi_square([sizes[k] for k in range(1, most + 1)], [n / most] * most)) < 3.5


def test_the_number_of_classes_is_uniform_up_to_those_left():
    small, sizes = source([1, 1, 1, 40]), {1: Counter(), 2: Counter(), 3: Counter(), 4: Counter()}
    for seed in range(500):
        left = Counter(small.train_labels.tolist())
        for task in gcil(small, tasks=4, samples=8, seed=seed).tasks:
            sizes[len([c for c in left if left[c]])][len(task.classes)] += 1
            left -= Counter(small.train_labels[task.train].tolist())
    for available, counts in sizes.items():
        n = counts.total()
        assert n > 100
        assert set(counts) == set(range(1, available + 1))
        if available > 1:
            assert abs(chi_square([counts[k] for k in counts], [n / available] * available)) < 3.5


def test_classes_are_chosen_uniformly_without_replacement():
    small = source([6] * 4)
    chosen = [gcil(small, "longtail", tasks=1, samples=8, decay=0.7, seed=s).tasks[0].classes for s in range(1500)]
    pairs = Counter(c for c in chosen if len(c) == 2)
    assert set(pairs) == set(combinations(range(4), 2))
    assert abs(chi_square(list(pairs.values()), [pairs.total() / 6] * 6)) < 3.5


@pytest.mark.parametrize("weights", WEIGHTS)
def test_class_sizes_follow_their_weights(weights):
    """Longtail: 0.984^label, normalised over the chosen classes. Uniform: 1 each."""
    many = source([300] * 100)  # so that 300 draws never exhaust a class
    label = np.arange(100)
    misfit = {}
    streams = [gcil(many, weights, tasks=1, samples=300, max_classes=8, seed=s).tasks[0] for s in range(200)]
    for claim, weight in (("uniform", np.ones(100)), ("longtail", 0.984**label)):
        excess, variance = np.zeros(100), np.zeros(100)
        for task in streams:
            p = np.zeros(100)
            p[list(task.classes)] = weight[list(task.classes)] / weight[list(task.classes)].sum()
            excess += np.bincount(many.train_labels[task.train], minlength=100) - 300 * p
            variance += 300 * p * (1 - p)
        misfit[claim] = (excess[variance > 0] ** 2 / variance[variance > 0]).mean()  # 1 ± 0.14 if these are the weights
    assert 0.5 < misfit.pop(weights) < 1.5
    assert all(other > 3 for other in misfit.values())


def test_labels_are_drawn_again_until_every_class_occurs():
    """Of four draws with p = 2/3, 1/3, given that both classes occur: 3+1, 2+2, 1+3 in the ratio 32 : 24 : 8."""
    small, sizes = source([9, 9]), Counter()
    for seed in range(2400):
        (task,) = gcil(small, "longtail", tasks=1, samples=4, decay=0.5, seed=seed).tasks
        if len(task.classes) == 2:
            sizes[(small.train_labels[task.train] == 0).sum().item()] += 1
    assert set(sizes) == {1, 2, 3}
    expected = np.array([8, 24, 32]) / 64 * sizes.total()
    assert abs(chi_square([sizes[1], sizes[2], sizes[3]], expected)) < 3.5


def test_images_missing_in_one_class_are_not_replaced_by_others():
    short, others = source([10, 1000]), []
    for seed in range(300):
        (task,) = gcil(short, tasks=1, samples=100, seed=seed).tasks
        if len(task.classes) == 2:
            few, many = np.bincount(short.train_labels[task.train]).tolist()
            assert few == 10
            others.append(many)
    assert np.mean(others) == pytest.approx(50, abs=4 * 5 / np.sqrt(len(others)))  # Binomial(100, 1/2)


def test_every_image_of_a_class_is_equally_likely():
    pairs = Counter(tuple(sorted(gcil(source([6]), tasks=1, samples=2, seed=s).tasks[0].train.tolist()))
                    for s in range(1500))  # fmt: skip
    assert set(pairs) == set(combinations(range(6), 2))
    assert abs(chi_square(list(pairs.values()), [100] * 15)) < 3.5


def test_longtail_weights_follow_the_order_of_classes():
    """The first class of the order, here the last label, is drawn most."""
    many = source([400] * 5)
    counts = Counter(
        int(c)
        for seed in range(800)
        for task in gcil(many, "longtail", tasks=1, samples=60, decay=0.3, order=[4, 3, 2, 1, 0], seed=seed).tasks
        for c in many.train_labels[task.train]
    )
    assert [c for c, _ in counts.most_common()] == [4, 3, 2, 1, 0]
    same = gcil(many, "longtail", tasks=2, samples=20)
    assert gcil(many, "longtail", tasks=2, samples=20, order=range(5)).fingerprint == same.fingerprint
    with pytest.raises(UsageError, match="each of the classes"):
        gcil(many, order=[0, 1])
