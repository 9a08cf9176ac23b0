"""Episodic memory: a fixed number of examples, kept by reservoir sampling (Vitter, 1985)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from scommer.errors import UsageError
from scommer.gpu.compiling import compiled


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
        u = torch.rand(n, generator=self.generator, device=self.seen.device, dtype=torch.float64)
        slot = _slots(self.seen, u, self.capacity)
        for name, rows in batch.items():
            self.fields[name].index_copy_(0, slot, rows.to(self.fields[name].dtype))
        self.seen.add_(n)

    def recall(self, n: int) -> dict[str, Tensor]:
        """N examples without replacement; the caller knows that at least n were offered."""
        ticket = torch.rand(self.capacity, generator=self.generator, device=self.seen.device)
        drawn = _valid(ticket, self.seen).topk(n).indices
        return {name: rows[drawn] for name, rows in self.fields.items()}

    def held(self, offered: int) -> int:
        """How many slots are filled after `offered` examples."""
        return min(self.capacity, offered)

    def tensors(self) -> Mapping[str, Tensor]:
        """The live state, by name."""
        return {"seen": self.seen, **{k: rows[: self.capacity] for k, rows in self.fields.items()}}


@compiled
def _slots(seen: Tensor, u: Tensor, capacity: int) -> Tensor:
    """The slot of each of a batch, from uniform draws; `capacity` for those that are not kept."""
    order = torch.arange(len(u), device=u.device)
    number = seen + order  # how many came before each one
    drawn = (u * (number + 1)).long()  # uniform on 0 … number
    slot = torch.where(number < capacity, number, drawn).clamp(max=capacity)
    # One at a time, a later example would overwrite an earlier one: of those that drew a slot, the last stays.
    overwritten = (slot[:, None] == slot) & (order[:, None] < order)
    return torch.where(overwritten.any(1), capacity, slot)


@compiled
def _valid(ticket: Tensor, seen: Tensor) -> Tensor:
    """Tickets of the slots that are filled; -1 for the others."""
    return ticket.where(torch.arange(len(ticket), device=ticket.device) < seen, -1.0)
