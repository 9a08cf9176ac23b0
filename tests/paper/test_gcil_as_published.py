"""The published streams of GCIL: what they depend on, and what all of them have in common."""

import numpy as np
import pytest
import torch

from scommer.data import Dataset, from_arrays
from scommer.paper.gcil_as_published import _train, gcil_as_published
from scommer.streams import Stream


@pytest.fixture(scope="module")
def data() -> Dataset:
    labels = np.arange(600) % 12
    images = np.zeros((600, 2, 2), np.uint8)
    return from_arrays(images, labels, images[:120], labels[:120])


def drawn(data: Dataset, draws: int, **given: int) -> Stream:
    sizes = {"tasks": 6, "samples": 80, "max_classes": 8, "epochs": 3, "buffer": 20, "batch": 8, "replay": 8}
    return gcil_as_published(data, draws=draws, **(sizes | given))


def same(a: Stream, b: Stream) -> list[bool]:
    return [torch.equal(x.train, y.train) for x, y in zip(a.tasks, b.tasks, strict=True)]


def test_an_image_appears_once_and_a_task_has_the_classes_of_its_images(data: Dataset) -> None:
    for draws in range(3):
        stream = drawn(data, draws)
        everything = torch.cat([task.train for task in stream.tasks])
        assert len(everything.unique()) == len(everything)
        seen: set[int] = set()
        for task in stream.tasks:
            assert len(task.train) <= 80
            assert tuple(data.train_labels[task.train].unique().tolist()) == task.classes
            assert 1 <= len(task.classes) <= 8
            seen |= set(task.classes)
            assert set(data.test_labels[task.test].tolist()) == seen


def test_without_replay_the_stream_does_not_depend_on_training(data: Dataset) -> None:
    assert all(same(drawn(data, 0), drawn(data, 0, epochs=9, buffer=50)))


def test_with_replay_all_tasks_but_the_first_depend_on_training(data: Dataset) -> None:
    base = drawn(data, 1)
    for other in (drawn(data, 0), drawn(data, 2), drawn(data, 1, epochs=4), drawn(data, 1, buffer=30)):
        first, *later = same(base, other)
        assert first
        assert not any(later)
    assert all(same(base, drawn(data, 1)))


@pytest.mark.parametrize("seed", range(5))
def test_drawing_slots_at_once_equals_drawing_them_one_by_one(seed: int) -> None:
    """Both leave the generator in the same state."""
    one, all_at_once = np.random.RandomState(seed), np.random.RandomState(seed)
    offered = 0
    for _ in range(700):
        if offered:
            one.choice(min(offered, 20), size=min(8, offered, 20), replace=False)
        for _ in range(8):
            if offered >= 20:
                one.randint(0, offered + 1)
            offered += 1
    assert _train(all_at_once, 700, 0, draws=1, buffer=20, batch=8, replay=8) == offered == 5600
    assert one.randint(2**31) == all_at_once.randint(2**31)


def test_rare_classes_are_rare_under_longtail(data: Dataset) -> None:
    stream = gcil_as_published(data, "longtail", draws=0, tasks=4, samples=60, max_classes=12, decay=0.7)
    counts = np.bincount(data.train_labels[torch.cat([t.train for t in stream.tasks])].numpy(), minlength=12)
    assert counts[:4].sum() > 2 * counts[8:].sum()
