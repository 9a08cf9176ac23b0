"""Settings for quick training, and the tasks of a stream as arrays."""

from typing import Any

import torch

from scommer import Stream
from scommer.methods import METHODS

SETTINGS: dict[str, Any] = {
    "network": "small", "width": 8, "epochs": 2, "pad": 1, "mean": [0.3], "std": [0.4],
}  # fmt: skip


METHODS_BY_TASK = [name for name, method in METHODS.items() if not method.joint]


def settings(method: str) -> dict[str, Any]:
    extra = {"scommer": {"warmup": 0, "alpha": 0.99}, "cls-er": {"alpha": 0.99}}
    return SETTINGS | extra.get(method, {})


def tasks(stream: Stream) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(stream.data.train_images[t.train], stream.data.train_labels[t.train]) for t in stream.tasks]
