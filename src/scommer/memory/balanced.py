"""Balanced episodic memory: the same number of examples of each class, as far as available."""

from collections.abc import Mapping

import torch
from torch import Tensor

from scommer.gpu.compiling import compiled
from scommer.memory.episodic import EpisodicMemory


class BalancedMemory(EpisodicMemory):
    """For each class, a uniform random sample of its examples offered so far; slots are shared equally.

    Every example gets a random key, and each class keeps its examples with the highest keys. A class with fewer
    examples than its share leaves its slots to the others.
    """

    def __init__(self, capacity: int, examples: Mapping[str, Tensor], generator: torch.Generator) -> None:
        super().__init__(capacity, examples, generator)
        self.keys = torch.zeros(capacity + 1, dtype=torch.float64, device=self.seen.device)

    def remember(self, **batch: Tensor) -> None:
        """Offer a batch. What is kept does not depend on the order of offers, only on the keys."""
        self.check_fields(batch)
        y = batch["y"]
        key = torch.rand(len(y), generator=self.generator, device=self.seen.device, dtype=torch.float64)
        slot = _slots(self.fields["y"][: self.capacity], self.keys[: self.capacity], self.seen, y, key)
        self.write(slot, batch)
        self.keys.index_copy_(0, slot, key)
        self.seen.add_(len(y))

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state by name."""
        return {**super().tensors(), "keys": self.keys[: self.capacity]}


@compiled
def _slots(held: Tensor, held_keys: Tensor, seen: Tensor, y: Tensor, key: Tensor) -> Tensor:
    """Choose a slot for each example of a batch; `capacity` for those that are not kept."""
    capacity, n = len(held), len(y)
    labels, keys = torch.cat([held, y]), torch.cat([held_keys, key])
    index = torch.arange(capacity + n, device=y.device)
    empty = (index >= seen) & (index < capacity)
    # An example's rank in its class: how many of its class have a higher key. Those of empty slots are 0.
    rank = ((labels[:, None] == labels) & (keys > keys[:, None])).sum(1)
    worth = torch.where(empty, index - 3.0 * len(index), keys - rank)  # empty slots are worth least, in order
    kept = torch.zeros_like(empty).index_fill(0, worth.topk(capacity).indices, True)
    least = worth[:capacity].topk(min(n, capacity), largest=False).indices  # replaced first
    place = kept[capacity:].cumsum(0) - 1
    return torch.where(kept[capacity:], least[place.clamp(min=0, max=len(least) - 1)], capacity)
