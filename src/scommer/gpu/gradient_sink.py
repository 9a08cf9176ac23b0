"""Where weight gradients are collected while the backward pass is still running."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from scommer.gpu.side_stream import SideStream


class GradientSink:
    """A slot for each parameter's gradient, and a side stream on which layers compute what goes there.

    Layers of `nn.layers` write their weight gradients here by themselves. What other layers produce is returned by
    autograd and written by whoever called it: `missing` says which parameters those are.
    """

    def __init__(self, parameters: Sequence[Tensor], slots: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.side = SideStream(slots[0].device)
        self._slots = dict(zip(map(Tensor.data_ptr, self.parameters), slots, strict=True))
        self._filled: list[int] = []  # addresses of parameters, in the order in which their gradients came

    def reset(self) -> None:
        """Begin a new backward pass."""
        self._filled.clear()

    def claim(self, parameter: Tensor) -> Tensor | None:
        """The slot to write a gradient into; None if there is none, or something was written there in this pass."""
        address = parameter.data_ptr()
        if address in self._filled or address not in self._slots:
            return None
        self._filled.append(address)
        return self._slots[address]

    def add(self, parameter: Tensor, gradient: Tensor) -> None:
        """Write a gradient into its slot; add it where the same layer was used before in this pass."""
        if (slot := self.claim(parameter)) is not None:
            slot.copy_(gradient)
        elif (address := parameter.data_ptr()) in self._slots:
            self._slots[address].add_(gradient)
            self._filled.append(address)

    def missing(self) -> list[int]:
        """The positions of parameters whose gradient has not come."""
        return [i for i, p in enumerate(self.parameters) if p.data_ptr() not in self._filled]

    def ended_with(self, parameter: Tensor) -> bool:
        """Whether this parameter's gradient was the last to come."""
        return self._filled[-1:] == [parameter.data_ptr()]

    @contextmanager
    def redirected(self, slots: Sequence[Tensor]) -> Iterator[None]:
        """Collect gradients in other slots for a while."""
        usual = self._slots
        self._slots = dict(zip(usual, slots, strict=True))
        try:
            yield
        finally:
            self._slots = usual
