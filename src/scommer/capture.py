"""A step as one CUDA graph: the only file that knows CUDA graphs."""

from collections.abc import Callable, Hashable, Iterable

import torch
from torch import Tensor

EAGER = 3  # real steps of each shape before it is captured: libraries choose their kernels meanwhile

Step = Callable[[Tensor, int, bool], None]


def captured(step: Step, generators: Iterable[torch.Generator]) -> Step:
    """The same step, replayed as a graph: same signature, same effect, one launch.

    A graph is recorded for each combination of batch size and host values and serves from then on, over
    all tasks, because the step changes its state in place. Draws come from the registered generators, so
    that they go on from where they are, graph or not.
    """
    generators = list(generators)
    stream = torch.cuda.Stream()
    seen: dict[Hashable, int] = {}
    graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def run(index: Tensor, replay: int, offer: bool) -> None:
        key = (len(index), replay, offer)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            if key in graphs:
                graph, slot = graphs[key]
                slot.copy_(index)
                graph.replay()
            elif seen.get(key, 0) < EAGER:
                seen[key] = seen.get(key, 0) + 1
                step(index, replay, offer)
            else:
                graph, slot = torch.cuda.CUDAGraph(), index.clone()
                for generator in generators:
                    graph.register_generator_state(generator)
                with torch.cuda.graph(graph, stream=stream):
                    step(slot, replay, offer)
                graphs[key] = graph, slot
                graph.replay()  # recording computes nothing
        torch.cuda.current_stream().wait_stream(stream)

    return run
