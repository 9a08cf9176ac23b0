"""A step as one CUDA graph: the only file that knows CUDA graphs."""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from scommer.gpu.compiling import compiling

EAGER = 3  # real steps of each kind before it is captured: kernels are chosen and compiled meanwhile

Step = Callable[[Tensor, int, bool], None]


def captured(step: Step, generators: Iterable[torch.Generator]) -> Step:
    """The same step, replayed as a graph: same signature, same effect, one launch.

    A graph is recorded for each combination of batch size and host values and serves from then on, over
    all tasks, because the step changes its state in place. Draws come from the registered generators, so
    that they go on from where they are, graph or not. Runs in the present stream, which is not the default one.
    """
    generators = list(generators)
    seen: dict[Hashable, int] = {}
    graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def run(index: Tensor, replay: int, offer: bool) -> None:
        key = (len(index), replay, offer)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= EAGER:
            with compiling():  # from the first on: a resumed run computes the same
                step(index, replay, offer)
            return
        if key in graphs:
            graph, slot = graphs[key]
            slot.copy_(index)
        else:
            graph, slot = torch.cuda.CUDAGraph(), index.clone()
            for generator in generators:
                graph.register_generator_state(generator)
            pool = next((g.pool() for g, _ in graphs.values()), None)  # one for all: they never run at once
            torch._C._cuda_clearCublasWorkspaces()  # each graph has its own: learners may share a stream of the pool
            with compiling(), _uncollected(), torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream()):
                step(slot, replay, offer)  # only recorded
            torch._C._cuda_clearCublasWorkspaces()
            graphs[key] = graph, slot
        graph.replay()

    return run


def replayed(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The work as one graph on a GPU, so that only its kernels count."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with _uncollected(), torch.cuda.graph(graph, stream=stream):
        work()
    return partial(_replay, graph, work)


def _replay(graph: torch.cuda.CUDAGraph, work: Callable[[], None]) -> None:
    """Replays the work's graph, which does not hold the tensors that the work reads: `work` does."""
    graph.replay()


@contextmanager
def _uncollected() -> Iterator[None]:
    """In here no garbage is collected: an old learner's graph must not be freed while a new one is recorded."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
