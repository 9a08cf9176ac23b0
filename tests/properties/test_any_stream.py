"""Any data set as a stream: which images each task has; and what reservoir sampling keeps of any batches."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from cases import cases, result_or_refusal
from hypothesis import given, strategies as st

from scommer import class_il, from_arrays, gcil
from scommer.memory.episodic import EpisodicMemory

labels = st.lists(st.integers(0, 4), min_size=1, max_size=40)


def data_set(train: list[int], test: list[int]) -> Any:
    """Images that hold their own number; every class of 0 … 4 is there."""
    train, test = [*range(5), *train], [*range(5), *test]
    x, y = (np.arange(len(part), dtype=np.uint8).reshape(-1, 1, 1) for part in (train, test))
    return from_arrays(x, np.array(train), y, np.array(test))


@cases()
@given(labels, labels, st.integers(-1, 7), st.sampled_from(["given", "shuffled"]), st.integers(0, 2**32 - 1))
def test_class_il(train: list[int], test: list[int], tasks: int, order: Any, seed: int) -> None:
    """Each image is in exactly one task: that of its class."""
    data = data_set(train, test)
    stream = result_or_refusal(lambda: class_il(data, tasks, order=order, seed=seed), f"{tasks}")
    assert (stream is not None) == (1 <= tasks <= 5)
    if stream is None:
        return
    assert sorted(c for task in stream.tasks for c in task.classes) == list(range(5))
    sizes = [len(task.classes) for task in stream.tasks]
    assert max(sizes) - min(sizes) <= 1
    for part, held in (("train", data.train_labels), ("test", data.test_labels)):
        indices = [getattr(task, part) for task in stream.tasks]
        assert sorted(torch.cat(indices).tolist()) == list(range(len(held)))
        for task, index in zip(stream.tasks, indices, strict=True):
            assert set(held[index].tolist()) <= set(task.classes)


@cases()
@given(
    labels, labels, st.integers(1, 6), st.integers(1, 12), st.integers(1, 7),
    st.sampled_from(["uniform", "longtail"]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_gcil(train: list[int], test: list[int], tasks: int, samples: int, most: int, weights: Any, seed: int) -> None:
    """No image occurs twice; a task has at most so many images and classes; tests cover all classes so far."""
    data = data_set(train, test)
    made = {"tasks": tasks, "samples": samples, "max_classes": most, "seed": seed}
    stream = result_or_refusal(lambda: gcil(data, weights, **made), "give")
    if stream is None:
        return
    assert len(stream.tasks) == tasks
    used = torch.cat([task.train for task in stream.tasks]).tolist()
    assert len(set(used)) == len(used)
    seen: set[int] = set()
    for task in stream.tasks:
        found = Counter(data.train_labels[task.train].tolist())
        assert set(found) == set(task.classes)
        assert 1 <= len(found) <= most
        assert len(task.train) <= samples
        seen |= set(found)
        assert task.test.tolist() == [i for i, c in enumerate(data.test_labels.tolist()) if c in seen]
    again = gcil(data, weights, **made)
    assert again.fingerprint == stream.fingerprint


@cases()
@given(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_episodic_memory(capacity: int, batches: list[int], seed: int) -> None:
    """It keeps different examples, as many as it can, each with its own label, and recalls only these."""
    generator = torch.Generator().manual_seed(seed)
    memory = EpisodicMemory(capacity, {"x": torch.zeros(2), "y": torch.tensor(0)}, generator)
    offered = 0
    for n in batches:
        y = torch.arange(offered, offered + n)
        memory.remember(x=torch.stack([y, -y], 1).float(), y=y)
        offered += n
        held = memory.held(offered)
        assert held == min(capacity, offered)
        kept = memory.fields["y"][:held].tolist()
        assert len(set(kept)) == held
        assert set(kept) <= set(range(offered))
        recalled = memory.recall(held)
        assert sorted(recalled["y"].tolist()) == sorted(kept)
        assert torch.equal(recalled["x"], torch.stack([recalled["y"], -recalled["y"]], 1).float())
