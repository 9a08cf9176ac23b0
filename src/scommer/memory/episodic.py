"""Episodic memory: a fixed number of examples, kept by reservoir sampling (Vitter, 1985)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from scommer.errors import UsageError


class EpisodicMemory:
    """Keeps a uniform sample of everything it was offered, in `capacity` slots.

    Fields are tensors of one row a slot: `x`, `y` and any others a method keeps ("logits"). One more
    row takes what is not kept, so that writing has a fixed shape and needs no branch.
    """

    def __init__(self, capacity: int, examples: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """`examples` holds one example of each field, without the batch dimension."""
        if capacity < 1:
            raise UsageError(f"a buffer of {capacity} holds nothing: give at least 1")
        self.capacity, self.generator = capacity, generator
        device = generator.device
        self.fields = {
            name: torch.zeros((capacity + 1, *e.shape), dtype=e.dtype, device=device) for name, e in examples.items()
        }
        self.seen = torch.zeros((), dtype=torch.int64, device=device)  # offered so far

    def remember(self, **batch: Tensor) -> None:
        """Offers a batch: after n offers each of them is kept with probability capacity / n."""
        if batch.keys() != self.fields.keys():
            raise UsageError(f"this memory keeps {', '.join(self.fields)}; it was given {', '.join(batch)}")
        n = len(next(iter(batch.values())))
        order = torch.arange(n, device=self.seen.device)
        number = self.seen + order  # how many came before each one
        u = torch.rand(n, generator=self.generator, device=self.seen.device, dtype=torch.float64)
        drawn = (u * (number + 1)).long()  # uniform on 0 … number
        slot = torch.where(number < self.capacity, number, drawn).clamp(max=self.capacity)
        # One at a time, a later example would overwrite an earlier one: of those that drew a slot, the last stays.
        last = torch.zeros(self.capacity + 1, dtype=torch.int64, device=slot.device)
        last = last.scatter_reduce(0, slot, order, "amax")
        slot = torch.where(last[slot] == order, slot, self.capacity)
        for name, rows in batch.items():
            self.fields[name].index_copy_(0, slot, rows.to(self.fields[name].dtype))
        self.seen.add_(n)

    def recall(self, n: int) -> dict[str, Tensor]:
        """N examples without replacement; the caller knows that at least n were offered."""
        slots = torch.arange(self.capacity, device=self.seen.device)
        ticket = torch.rand(self.capacity, generator=self.generator, device=self.seen.device)
        drawn = ticket.where(slots < self.seen, -1.0).topk(n).indices
        return {name: rows[drawn] for name, rows in self.fields.items()}

    def held(self, offered: int) -> int:
        """How many slots are filled after `offered` examples."""
        return min(self.capacity, offered)

    def tensors(self) -> Mapping[str, Tensor]:
        """The live state, by name."""
        return {"seen": self.seen, **{k: rows[: self.capacity] for k, rows in self.fields.items()}}
