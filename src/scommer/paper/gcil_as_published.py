"""GCIL as the published implementations draw it: from the global generator that replay also draws from.

Their stream therefore depends on the method, the buffer and the epochs. Where nothing else draws (dropout does, in
SCoMMER's code), the stream can be reproduced, to see how much of a published number is due to it.
"""

from typing import Literal

import numpy as np
import torch

from scommer.streams.stream import DatasetLike, Stream, Task, as_dataset, indices_of_classes


def gcil_as_published(
    source: DatasetLike,
    weights: Literal["uniform", "longtail"] = "uniform",
    *,
    draws: int,
    buffer: int = 200,
    epochs: int = 100,
    batch: int = 32,
    replay: int = 32,
    tasks: int = 20,
    samples: int = 1000,
    max_classes: int = 50,
    decay: float = 0.984,
    seed: int = 1993,
    name: str = "gcil-as-published",
) -> Stream:
    """Return the stream of a method with `draws` replay batches per step: SGD has 0, ER and CLS-ER 1, DER++ 2."""
    data = as_dataset(source)
    rng = np.random.RandomState(seed)  # NumPy's legacy generator, which is global there
    labels = data.train_labels.numpy()
    classes = dict.fromkeys(labels.tolist())  # in order of first appearance
    left = {c: np.flatnonzero(labels == c).tolist() for c in classes}
    seen: set[int] = set()
    offered = 0
    made = []
    for t in range(tasks):
        available = np.array([c for c, images in left.items() if images])
        count = int(rng.choice(min(len(available), max_classes), size=1)[0]) + 1
        chosen = rng.choice(available, size=count, replace=False)
        weight = np.ones(count) if weights == "uniform" else decay ** chosen.astype(float)
        drawn = np.zeros(0, int)
        while len(np.unique(drawn)) != count:
            drawn = rng.choice(chosen, size=samples, replace=True, p=weight / weight.sum())
        train: list[int] = []
        for c in chosen.tolist():
            picked = rng.choice(left[c], min(int((drawn == c).sum()), len(left[c])), replace=False).tolist()
            left[c] = list(set(left[c]) - set(picked))
            train += picked
        seen.update(chosen.tolist())
        made.append(
            Task(
                torch.tensor(train), indices_of_classes(data.test_labels, sorted(seen)), tuple(sorted(chosen.tolist()))
            )
        )
        if draws and t < tasks - 1:
            offered = _train(rng, len(train) // batch * epochs, offered, draws, buffer, batch, replay)
    return Stream(name, "gcil", data, tuple(made))


def _train(
    rng: np.random.RandomState, steps: int, offered: int, draws: int, buffer: int, batch: int, replay: int
) -> int:
    """Make the draws of `steps` training steps; return how many images episodic memory was offered by then."""
    for _ in range(steps):
        held = min(offered, buffer)
        for _ in range(draws if held else 0):
            rng.choice(held, size=min(replay, held), replace=False)
        numbers = np.arange(offered, offered + batch)
        rng.randint(0, numbers[numbers >= buffer] + 1)  # a slot for each image, once all slots are filled
        offered += batch
    return offered
