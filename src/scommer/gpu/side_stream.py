"""A second CUDA stream, for work that can overlap with the current one. On a CPU everything runs in order."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from scommer.gpu.switches import enabled

Event = torch.cuda.Event


def record_event(device: torch.device) -> Event | None:
    """Record an event on the current stream: it is reached when all work queued so far is done. None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


class SideStream:
    """A second stream of low priority. An `urgent` one has high priority, and no switch turns it off."""

    def __init__(self, device: torch.device, urgent: bool = False) -> None:
        used = device.type == "cuda" and (urgent or enabled("side-streams"))
        self.stream = torch.cuda.Stream(device, priority=-int(urgent)) if used else None
        self._inputs: list[Tensor] = []  # kept alive until `join`
        self._before_last: Event | None = None  # reached when all work but the last `run` is done

    @contextmanager
    def run(self, *inputs: Tensor, after: Event | None = None) -> Iterator[None]:
        """Run the enclosed work on this stream, after the event `after` (default: after all work queued so far).

        Keeps the memory of `inputs` from being reused before `join`.
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

        Keeps the memory of `results` from being reused before the current stream has read them.
        """
        if self.stream is None:
            return
        current = torch.cuda.current_stream(self.stream.device)
        current.wait_stream(self.stream)
        self._inputs.clear()
        for result in results:
            result.record_stream(current)

    def join_all_but_last(self) -> None:
        """Make the current stream wait for this one, except for the work of the last `run`."""
        if self.stream is not None and self._before_last is not None:
            torch.cuda.current_stream(self.stream.device).wait_event(self._before_last)
