"""A second CUDA stream, for work that need not wait its turn. On a CPU everything runs in order."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from scommer.gpu.switches import enabled

Event = torch.cuda.Event


def record_event(device: torch.device) -> Event | None:
    """An event that is reached when the current stream has done all it was asked so far; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


class SideStream:
    """A stream beside the current one, which has priority where both want the GPU, unless this is `urgent`."""

    def __init__(self, device: torch.device, urgent: bool = False) -> None:
        wanted = device.type == "cuda" and (urgent or enabled("side-streams"))
        self.stream = torch.cuda.Stream(device, priority=-int(urgent)) if wanted else None
        self._inputs: list[Tensor] = []  # kept alive until `join`
        self._before_last: Event | None = None  # reached when all work but the last is done

    @contextmanager
    def run(self, *inputs: Tensor, after: Event | None = None) -> Iterator[None]:
        """Run the enclosed work on this stream, once the current stream has reached `after` (default: here).

        The inputs' memory is not reused before `join`.
        """
        if self.stream is None:
            yield
            return
        if after is None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        else:
            self.stream.wait_event(after)
        self._inputs += inputs
        with torch.cuda.stream(self.stream):
            self._before_last = record_event(self.stream.device)
            yield

    def join(self, *results: Tensor) -> None:
        """Make the current stream wait for this one.

        The results' memory is not reused before the current stream has read them.
        """
        if self.stream is None:
            return
        current = torch.cuda.current_stream(self.stream.device)
        current.wait_stream(self.stream)
        self._inputs.clear()
        for result in results:
            result.record_stream(current)

    def join_all_but_last(self) -> None:
        """Make the current stream wait for everything here except the last work."""
        if self.stream is not None and self._before_last is not None:
            torch.cuda.current_stream(self.stream.device).wait_event(self._before_last)
