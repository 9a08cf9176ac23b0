"""Episodic memory: a buffer of examples, filled by reservoir sampling (Vitter, 1985)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from scommer.errors import UsageError
from scommer.gpu.compiling import compiled


class EpisodicMemory:
    """A uniform random sample of all examples offered so far, in `capacity` slots.

    Fields are tensors with a row for each slot: `x`, `y`, and others that a method keeps, such as "logits". One more
    row receives the examples that are not kept, so that writing has a fixed shape and needs no branch.
    """

    def __init__(self, capacity: int, examples: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """`examples` has one example of each field, without the batch dimension."""
        if capacity < 1:
            raise UsageError(f"invalid buffer = {capacity}: give at least 1")
        self.capacity, self.generator = capacity, generator
        device = generator.device
        self.fields = {
            name: torch.zeros((capacity + 1, *e.shape), dtype=e.dtype, device=device) for name, e in examples.items()
        }
        self.seen = torch.zeros((), dtype=torch.int64, device=device)  # offered so far

    def remember(self, **batch: Tensor) -> None:
        """Offer a batch. After n examples in all, each of them is kept with probability capacity / n."""
        self.check_fields(batch)
        n = len(next(iter(batch.values())))
        u = torch.rand(n, generator=self.generator, device=self.seen.device, dtype=torch.float64)
        self.write(_slots(self.seen, u, self.capacity), batch)
        self.seen.add_(n)

    def check_fields(self, batch: Mapping[str, Tensor]) -> None:
        """Refuse a batch with other fields."""
        if batch.keys() != self.fields.keys():
            raise UsageError(f"expected the fields {', '.join(self.fields)}, but got {', '.join(batch)}")

    def write(self, slot: Tensor, batch: Mapping[str, Tensor]) -> None:
        """Write each example into its slot."""
        for name, rows in batch.items():
            self.fields[name].index_copy_(0, slot, rows.to(self.fields[name].dtype))

    def recall(self, n: int) -> dict[str, Tensor]:
        """Draw n examples without replacement. The caller makes sure that at least n were offered."""
        key = torch.rand(self.capacity, generator=self.generator, device=self.seen.device)
        drawn = _valid(key, self.seen).topk(n).indices
        return {name: rows[drawn] for name, rows in self.fields.items()}

    def held(self, offered: int) -> int:
        """Return how many slots are filled after `offered` examples."""
        return min(self.capacity, offered)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state by name."""
        return {"seen": self.seen, **{k: rows[: self.capacity] for k, rows in self.fields.items()}}


@compiled
def _slots(seen: Tensor, u: Tensor, capacity: int) -> Tensor:
    """Choose a slot for each example of a batch from uniform draws; `capacity` for those that are not kept."""
    order = torch.arange(len(u), device=u.device)
    number = seen + order  # of examples before this one
    drawn = (u * (number + 1)).long()  # uniform on 0 … number
    slot = torch.where(number < capacity, number, drawn).clamp(max=capacity)
    # As if offered one by one: of several examples with the same slot, the last one stays.
    overwritten = (slot[:, None] == slot) & (order[:, None] < order)
    return torch.where(overwritten.any(1), capacity, slot)


@compiled
def _valid(key: Tensor, seen: Tensor) -> Tensor:
    """Return the keys of filled slots, and -1 for empty ones."""
    return key.where(torch.arange(len(key), device=key.device) < seen, -1.0)
