"""Capture a training step as one CUDA graph. No other file uses CUDA graphs."""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from scommer.gpu.compiling import compiling

EAGER_STEPS = 3  # before each capture, so that kernels are chosen and compiled first

Step = Callable[[Tensor, int, bool], None]


def captured(
    step: Step, generators: Iterable[torch.Generator], alone: Callable[[int], bool] = lambda replay: False
) -> Step:
    """Return a function with the same signature and effect that replays the step as a CUDA graph.

    A graph is captured once for each combination of batch size and host values. It stays valid for all tasks,
    because a step changes its state in place. The step may draw only from `generators`: replaying advances them
    as an eager step would. Call it on a stream other than the default one. `alone(replay)` says whether the next
    step is hardly like any other: nothing is compiled for it.
    """
    generators = list(generators)
    calls: dict[Hashable, int] = {}
    graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def run(index: Tensor, replay: int, offer: bool) -> None:
        if alone(replay):
            step(index, replay, offer)
            return
        key = (len(index), replay, offer)
        calls[key] = calls.get(key, 0) + 1
        if calls[key] <= EAGER_STEPS:
            with compiling():  # eager steps use the compiled functions too, so that a resumed run computes the same
                step(index, replay, offer)
            return
        if key in graphs:
            graph, static_index = graphs[key]
            static_index.copy_(index)
        else:
            graph, static_index = torch.cuda.CUDAGraph(), index.clone()
            for generator in generators:
                graph.register_generator_state(generator)
            pool = next((g.pool() for g, _ in graphs.values()), None)  # shared: graphs of a learner never overlap
            # Learners may share a stream of PyTorch's pool, and with it a cuBLAS workspace. Clearing them before and
            # after gives each graph a workspace that no other work writes to.
            torch._C._cuda_clearCublasWorkspaces()
            stream = torch.cuda.current_stream()
            with compiling(), no_garbage_collection(), torch.cuda.graph(graph, pool=pool, stream=stream):
                step(static_index, replay, offer)  # recorded, not executed
            torch._C._cuda_clearCublasWorkspaces()
            graphs[key] = graph, static_index
        graph.replay()

    return run


def as_graph(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return a function that replays `work` as a CUDA graph, without launch overhead; on a CPU, `work` itself."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with no_garbage_collection(), torch.cuda.graph(graph, stream=stream):
        work()
    return partial(_replay, graph, work)


def _replay(graph: torch.cuda.CUDAGraph, work: Callable[[], None]) -> None:
    """Replay the graph. `work` is an argument to keep the tensors alive that the graph reads."""
    graph.replay()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which could free another learner's graph and so break the current capture."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
