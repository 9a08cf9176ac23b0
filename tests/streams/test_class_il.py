"""Class-IL streams: classes and images of each task, validation, the paper's streams, fingerprints."""

from collections import Counter

import numpy as np
import pytest
import torch

from scommer import data
from scommer.data import from_arrays
from scommer.errors import UsageError
from scommer.streams import STREAMS, class_il, load


def numbered(labels, test_labels=None):
    """Arrays in which every pixel is the number of the image; test images count from 1000."""
    if test_labels is None:
        return pixels(range(len(labels))), np.array(labels)
    test = pixels(range(1000, 1000 + len(test_labels)))
    return pixels(range(len(labels))), np.array(labels), test, np.array(test_labels)


def pixels(values):
    return np.array(values, dtype=np.float32)[:, None, None].repeat(2, 1).repeat(2, 2)


def numbers(images):
    return images[:, 0, 0, 0].int().tolist()


SEVEN = numbered(list(range(7)) * 5, list(range(7)) * 2)


@pytest.fixture(scope="module")
def cifar10(cifar):
    return data.load("cifar10", cifar("cifar10"))


@pytest.fixture(scope="module")
def cifar100(cifar):
    return data.load("cifar100", cifar("cifar100"))


@pytest.mark.parametrize("tasks", range(1, 8))
@pytest.mark.parametrize("order", ["given", "shuffled", [3, 1, 4, 0, 5, 2, 6]])
def test_every_image_is_in_the_task_of_its_class_only(tasks, order):
    stream = class_il(SEVEN, tasks, order=order)
    assert len(stream.tasks) == tasks
    assert sorted(c for task in stream.tasks for c in task.classes) == list(range(7))
    for part in ("train", "test"):
        labels = getattr(stream.data, f"{part}_labels").tolist()
        for task in stream.tasks:
            mine = [i for i, label in enumerate(labels) if label in task.classes]
            assert getattr(task, part).tolist() == mine
            assert getattr(task, part).dtype == torch.int64


def test_classes_are_in_label_order():
    assert [task.classes for task in class_il(SEVEN, 7).tasks] == [(c,) for c in range(7)]


def test_the_first_tasks_have_one_class_more_if_classes_do_not_divide_evenly():
    assert [task.classes for task in class_il(SEVEN, 3).tasks] == [(0, 1, 2), (3, 4), (5, 6)]
    assert [len(task.classes) for task in class_il(SEVEN, 5).tasks] == [2, 2, 1, 1, 1]


def test_a_listed_order_holds_within_and_between_tasks():
    stream = class_il(SEVEN, 3, order=(6, 0, 3, 2, 5, 1, 4))
    assert [task.classes for task in stream.tasks] == [(6, 0, 3), (2, 5), (1, 4)]
    assert class_il(SEVEN, 3, order=torch.tensor([6, 0, 3, 2, 5, 1, 4])).tasks[0].classes == (6, 0, 3)


def test_an_order_may_be_an_array():
    assert class_il(SEVEN, 7, order=np.arange(7)[::-1]).tasks[0].classes == (6,)


def test_a_shuffled_order_is_a_permutation_determined_by_the_seed():
    def order(seed):
        return [c for task in class_il(SEVEN, 7, order="shuffled", seed=seed).tasks for c in task.classes]

    orders = [order(seed) for seed in range(200)]
    assert all(sorted(o) == list(range(7)) for o in orders)
    assert orders == [order(seed) for seed in range(200)]
    first = Counter(o[0] for o in orders)  # each class with probability 1/7: 28.6 ± 4.9
    assert len(first) == 7
    assert all(9 < n < 49 for n in first.values())


def test_shuffling_does_not_touch_global_generators():
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    class_il(SEVEN, 7, order="shuffled", seed=3)
    after = np.random.get_state()[1], torch.get_rng_state()  # noqa: NPY002
    assert np.array_equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


@pytest.mark.parametrize("tasks", [-1, 0, 8, "2", 2.5])
def test_invalid_numbers_of_tasks_are_refused(tasks):
    with pytest.raises(UsageError, match=rf"7 classes into {tasks!r} tasks: give a whole number from 1 to 7"):
        class_il(SEVEN, tasks)


@pytest.mark.parametrize(
    "order",
    [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 4, 5, 5],
        [1, 2, 3, 4, 5, 6, 7],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [],
        [[0, 1, 2, 3, 4, 5, 6]],
        [[0, 1, 2, 3], [4, 5, 6]],
    ],
)
def test_orders_must_list_each_class_once(order):
    with pytest.raises(UsageError, match=r"each of the classes 0 … 6 once"):
        class_il(SEVEN, 3, order=order)


def test_an_unknown_order_is_refused():
    with pytest.raises(UsageError, match="did you mean 'shuffled'"):
        class_il(SEVEN, 3, order="shufled")


def test_a_task_without_test_images_is_refused():
    with pytest.raises(UsageError, match=r"classes \[2\] have 4 training and 0 test images"):
        class_il(numbered([0, 1, 2] * 4, [0, 1]), 3)
    assert len(class_il(numbered([0, 1, 2] * 4, [0, 2]), 2).tasks) == 2  # class 1 shares a task with class 0


def test_arrays_become_a_stream_in_one_call():
    labels = np.array([0, 1, 2, 3] * 10)
    stream = class_il((np.zeros((40, 8, 8, 3), dtype=np.uint8), labels), tasks=2)
    assert stream.kind == "class-il"
    assert stream.data.image_shape == (3, 8, 8)
    assert [(len(task.train), len(task.test)) for task in stream.tasks] == [(16, 4), (16, 4)]  # a fifth is held out


def test_a_data_set_is_not_copied():
    made = from_arrays(*SEVEN)
    assert class_il(made, 2).data is made


def test_phases_are_single_tasks_or_all_together():
    stream = class_il(SEVEN, 3, order="shuffled")
    assert [p.tolist() for p in stream.phases()] == [task.train.tolist() for task in stream.tasks]
    (everything,) = stream.phases(joint=True)
    assert sorted(everything.tolist()) == list(range(35))


# --- validation


def test_validation_replaces_the_test_images_by_training_images():
    labels = [c for c, n in enumerate((10, 20, 40)) for _ in range(n)]
    stream = class_il(numbered(labels, [0, 1, 2] * 5), 3, validation=0.2)
    train, held_out = numbers(stream.data.train_images), numbers(stream.data.test_images)
    assert sorted(train + held_out) == list(range(70))  # training images, each once; none of 1000 …
    assert Counter(labels[i] for i in held_out) == {0: 2, 1: 4, 2: 8}
    assert [labels[i] for i in train] == stream.data.train_labels.tolist()
    assert [labels[i] for i in held_out] == stream.data.test_labels.tolist()
    assert [len(task.test) for task in stream.tasks] == [2, 4, 8]


def test_validation_holds_out_the_same_images_every_time():
    first, second = (class_il(SEVEN, 7, validation=0.4) for _ in range(2))
    assert numbers(first.data.test_images) == numbers(second.data.test_images)
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_invalid_validation_shares_are_refused(share):
    with pytest.raises(UsageError, match=str(share)):
        class_il(SEVEN, 7, validation=share)
    with pytest.raises(UsageError, match=str(share)):
        load("s-digits", validation=share)


def test_validation_on_real_cifar(cifar10):
    stream = class_il(cifar10, 5, validation=0.1)
    assert [(len(task.train), len(task.test)) for task in stream.tasks] == [(9000, 1000)] * 5
    assert Counter(stream.data.test_labels.tolist()) == dict.fromkeys(range(10), 500)
    whole = {image.numpy().tobytes() for image in cifar10.train_images}
    train = {image.numpy().tobytes() for image in stream.data.train_images}
    held_out = {image.numpy().tobytes() for image in stream.data.test_images}
    assert len(whole) == 50_000  # CIFAR-10's training images are all different
    assert train | held_out == whole
    assert not train & held_out


# --- the paper's streams on the real files


def test_s_cifar10_is_five_tasks_of_two_classes(cifar, cifar10):
    stream = load("s-cifar10", cifar("cifar10"))
    assert [task.classes for task in stream.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert stream.data.class_names[:4] == ("airplane", "automobile", "bird", "cat")
    for task in stream.tasks:
        assert (len(task.train), len(task.test)) == (10_000, 2_000)
        assert set(cifar10.train_labels[task.train].tolist()) == set(task.classes)
        assert set(cifar10.test_labels[task.test].tolist()) == set(task.classes)
    assert len(torch.cat([task.train for task in stream.tasks]).unique()) == 50_000
    assert len(torch.cat([task.test for task in stream.tasks]).unique()) == 10_000


@pytest.mark.parametrize(("name", "tasks"), [("s-cifar100", 5), ("s-cifar100-10", 10), ("s-cifar100-20", 20)])
def test_s_cifar100_in_5_10_and_20_tasks(cifar100, name, tasks):
    source, make = STREAMS[name]
    stream, each = make(cifar100), 100 // tasks
    assert source == "cifar100"
    assert [task.classes for task in stream.tasks] == [tuple(range(t * each, (t + 1) * each)) for t in range(tasks)]
    assert {(len(task.train), len(task.test)) for task in stream.tasks} == {(500 * each, 100 * each)}
    for task in stream.tasks:
        assert set(stream.data.train_labels[task.train].tolist()) == set(task.classes)


def test_s_digits_is_five_tasks_of_two_digits():
    stream = load("s-digits")
    assert [task.classes for task in stream.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert sum(len(task.train) + len(task.test) for task in stream.tasks) == 1797


def test_an_unknown_stream_gets_a_suggestion():
    with pytest.raises(UsageError, match=r"unknown stream 's-cifar1O': did you mean 's-cifar10'\?"):
        load("s-cifar1O")


# --- fingerprint


def test_a_fingerprint_is_the_same_for_the_same_stream(cifar100):
    assert class_il(SEVEN, 3).fingerprint == class_il(SEVEN, 3).fingerprint
    assert class_il(SEVEN, 3).fingerprint == class_il(SEVEN, 3, order=range(7)).fingerprint
    assert class_il(cifar100, 5).fingerprint == class_il(cifar100, 5).fingerprint


def test_a_fingerprint_changes_with_tasks_labels_and_order():
    images, labels, test_images, test_labels = SEVEN
    swapped = labels.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    swapped_test = test_labels.copy()
    swapped_test[[0, 1]] = swapped_test[[1, 0]]
    prints = [
        class_il(SEVEN, 3).fingerprint,
        class_il(SEVEN, 4).fingerprint,
        class_il(SEVEN, 3, order=[1, 0, 2, 3, 4, 5, 6]).fingerprint,  # the same tasks, their classes in another order
        class_il(SEVEN, 3, order=[3, 4, 0, 1, 2, 5, 6]).fingerprint,
        class_il(SEVEN, 3, validation=0.2).fingerprint,
        class_il(SEVEN, 3, validation=0.4).fingerprint,
        class_il((images, swapped, test_images, test_labels), 3).fingerprint,
        class_il((images, labels, test_images, swapped_test), 3).fingerprint,
        class_il((images[:-1], labels[:-1], test_images, test_labels), 3).fingerprint,
        class_il((images, labels, test_images[:-1], test_labels[:-1]), 3).fingerprint,
    ]
    assert len(set(prints)) == len(prints)


def test_a_fingerprint_changes_with_the_images():
    images, labels, *test = SEVEN
    assert class_il((images[::-1].copy(), labels, *test), 3).fingerprint != class_il(SEVEN, 3).fingerprint


def test_other_sources_are_refused():
    for source in (np.zeros((4, 8, 8)), (np.zeros((4, 8, 8)),), None):
        with pytest.raises(UsageError, match="cannot make a stream from"):
            class_il(source, 2)


def test_the_repr_describes_a_stream_in_one_line():
    assert repr(class_il(SEVEN, 7, name="seven")).startswith("Stream('seven', class-il, 7 tasks, ")
