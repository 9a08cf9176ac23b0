"""Collect weight gradients while the backward pass is still running."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from scommer.gpu.side_stream import SideStream


class GradientSink:
    """A slot for the gradient of each parameter, and the side stream on which layers compute these gradients.

    The layers of `nn.layers` write their weight gradients here. Autograd returns the gradients of all other layers to
    its caller, who writes them: `missing` lists their parameters.
    """

    def __init__(self, parameters: Sequence[Tensor], slots: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.side = SideStream(slots[0].device)
        self._slots = dict(zip(map(Tensor.data_ptr, self.parameters), slots, strict=True))
        self._filled: list[int] = []  # addresses of parameters, in the order in which their gradients arrived

    def reset(self) -> None:
        """Start a new backward pass."""
        self._filled.clear()

    def claim(self, parameter: Tensor) -> Tensor | None:
        """Return the slot to write a gradient into; None if the parameter has none or it is filled already."""
        address = parameter.data_ptr()
        if address in self._filled or address not in self._slots:
            return None
        self._filled.append(address)
        return self._slots[address]

    def add(self, parameter: Tensor, gradient: Tensor) -> None:
        """Write a gradient into its slot; add it if the slot is filled, because the layer was used more than once."""
        if (slot := self.claim(parameter)) is not None:
            slot.copy_(gradient)
        elif (address := parameter.data_ptr()) in self._slots:
            self._slots[address].add_(gradient)
            self._filled.append(address)

    def missing(self) -> list[int]:
        """Return the indices of the parameters without a gradient so far."""
        return [i for i, p in enumerate(self.parameters) if p.data_ptr() not in self._filled]

    def ended_with(self, parameter: Tensor) -> bool:
        """Return whether this parameter's gradient arrived last."""
        return self._filled[-1:] == [parameter.data_ptr()]

    @contextmanager
    def redirected(self, slots: Sequence[Tensor]) -> Iterator[None]:
        """Collect gradients in other slots."""
        own = self._slots
        self._slots = dict(zip(own, slots, strict=True))
        try:
            yield
        finally:
            self._slots = own
