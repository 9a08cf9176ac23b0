"""How fast a step is on this machine, and how near to what its network must cost at the least."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer import presets, record as records
from scommer.data import Dataset
from scommer.device import device_facts
from scommer.learner import Learner
from scommer.streams import Stream, class_il

COHORTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Timing:
    """A median over repeated steps, for each learner."""

    what: str
    ms: float  # a step and learner
    images_per_second: float  # task images, all learners together
    mib: float | None = None  # of GPU memory, at most


@dataclass(frozen=True)
class Bench:
    """What was measured, and on what."""

    method: str
    network: str
    batch: int
    timings: list[Timing]
    floor_ms: float  # the convolutions of a step alone
    bare_ms: float  # the networks of a step alone: forward and backward
    device: dict[str, Any]
    versions: dict[str, str]
    code: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def bench(
    method: str = "scommer",
    *,
    network: str = "resnet18",
    classes: int = 10,
    size: int = 32,
    device: torch.device | str = "cpu",
    steps: int = 30,
    cohorts: tuple[int, ...] = COHORTS,
) -> Bench:
    """Times steps on random images: eager, captured where there is a GPU, and several learners in turn."""
    device = torch.device(device)
    stream = _random_stream(classes, size)
    gpu = device.type == "cuda"
    timings = []
    if gpu:
        timings.append(_time_learners(stream, method, network, device, 1, steps, capture=False))
    timings += [_time_learners(stream, method, network, device, n, steps, capture=True) for n in cohorts]
    learner = _learner(stream, method, network, device, 0, capture=False)
    return Bench(
        method, network, learner.training.batch, timings,
        floor_ms=_median_ms(convolutions(learner), steps, device),
        bare_ms=_median_ms(networks_alone(learner), steps, device),
        device=device_facts(device), versions=records.versions(), code=records.code_identity(),
    )  # fmt: skip


def _random_stream(classes: int, size: int) -> Stream:
    draw = torch.Generator().manual_seed(0)
    n = 2048
    images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=draw)
    labels = torch.arange(n) % classes
    names = tuple(map(str, range(classes)))
    return class_il(Dataset("random", images, labels, images[:classes], labels[:classes], names), tasks=1)


def _learner(stream: Stream, method: str, network: str, device: torch.device, seed: int, capture: bool) -> Learner:
    settings = {"network": network, "epochs": 10**6}
    made, training = presets.resolve("s-cifar10", method, 200, "official", settings)
    return Learner(stream, made, training, buffer=200, seed=seed, device=device, capture=capture)


def _time_learners(
    stream: Stream, method: str, network: str, device: torch.device, n: int, steps: int, capture: bool
) -> Timing:
    learners = [_learner(stream, method, network, device, seed, capture) for seed in range(n)]
    going = [learner.learn() for learner in learners]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def together() -> None:
        for moments in going:
            while next(moments) != "step":
                pass

    ms = _median_ms(together, steps, device) / n
    mib = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    how = "captured" if capture and device.type == "cuda" else "eager"
    what = f"{how}, {n} learners side by side" if n > 1 else f"{how}, one learner"
    return Timing(what, ms, learners[0].training.batch / ms * 1000, mib)


def _median_ms(work: Callable[[], None], steps: int, device: torch.device) -> float:
    def settled() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    for _ in range(max(3, steps // 5)):  # libraries choose their kernels, graphs are recorded
        work()
    times = []
    for _ in range(5):
        start = settled()
        for _ in range(max(1, steps // 5)):
            work()
        times.append((settled() - start) / max(1, steps // 5))
    return 1000 * statistics.median(times)


def _passes(learner: Learner) -> tuple[int, int]:
    """Images that a step trains on, and images that other memories answer for."""
    t, mind = learner.training, learner.mind
    return t.batch + learner.method.draws * t.replay, t.replay * len(mind.long_term)


def networks_alone(learner: Learner) -> Callable[[], None]:
    """Forward and backward of working memory and forward of the others, on as many images as a step."""
    trained, answered = _passes(learner)
    x = torch.randn(max(trained, answered), *learner.stream.data.image_shape, device=learner.device)
    x = x.contiguous(memory_format=torch.channels_last)
    memories = list(learner.mind.long_term.values())

    def work() -> None:
        learner.mind.working(x[:trained]).logits.sum().backward()
        for memory in memories:
            memory.retrieve(x[: answered // len(memories)])

    return work


def convolutions(learner: Learner) -> Callable[[], None]:
    """The convolutions of a step and nothing else: what no implementation can do without."""
    trained, answered = _passes(learner)
    layers = [
        (conv, x[:1].expand(trained, -1, -1, -1).contiguous(memory_format=torch.channels_last).requires_grad_())
        for conv, x in _inputs(learner)
    ]

    def work() -> None:
        for conv, x in layers:
            y = F.conv2d(x, conv.weight, None, conv.stride, conv.padding)
            torch.autograd.grad(y, (x, conv.weight), y.detach())
            with torch.no_grad():
                if answered:
                    F.conv2d(x[:answered], conv.weight, None, conv.stride, conv.padding)

    return work


def _inputs(learner: Learner) -> list[tuple[nn.Conv2d, Tensor]]:
    """Each convolution of working memory with an input of its shape."""
    seen: list[tuple[nn.Conv2d, Tensor]] = []
    network = learner.mind.working.network
    hooks = [
        m.register_forward_hook(lambda module, args, _: seen.append((module, args[0].detach())))
        for m in network.modules()
        if isinstance(m, nn.Conv2d)
    ]
    network(torch.randn(2, *learner.stream.data.image_shape, device=learner.device))
    for hook in hooks:
        hook.remove()
    return seen
