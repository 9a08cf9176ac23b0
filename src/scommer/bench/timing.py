"""How fast a step is on this machine, and how near to what its network must cost at the least."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from scommer import provenance
from scommer.bench.floor import convolutions, networks_alone
from scommer.data import Dataset
from scommer.device import Precision, device_facts
from scommer.engine.learner import Learner
from scommer.gpu.capture import as_graph
from scommer.gpu.switches import SWITCHES, without
from scommer.methods import Method
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.streams import Stream, class_il

COHORTS = (1, 2, 4, 8)
WARM = 6  # times before anything is timed: libraries choose their kernels, graphs are recorded


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
    start_s: float  # from making a learner to its first step (on a GPU: the first captured one)
    score_s: float  # all memories on all test images
    tested: int  # how many images that is
    views: int  # and how many memories
    device: dict[str, Any]
    versions: dict[str, str]
    code: dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What is timed."""

    stream: Stream
    method: str
    network: str
    device: torch.device
    precision: Precision

    def resolved(self) -> tuple[Method, Training]:
        """The published settings."""
        return presets.resolve("s-cifar10", self.method, 200, "official", {"network": self.network, "epochs": 10**6})

    def learner(self, seed: int = 0, capture: bool = False) -> Learner:
        """A learner with them."""
        method, training = self.resolved()
        return Learner(
            self.stream, method, training, buffer=200, seed=seed,
            device=self.device, precision=self.precision, capture=capture,
        )  # fmt: skip


def bench(
    method: str = "scommer",
    *,
    network: str = "resnet18",
    classes: int = 10,
    size: int = 32,
    device: torch.device | str = "cpu",
    precision: Precision = "fp32",
    steps: int = 30,
    cohorts: tuple[int, ...] = COHORTS,
    levers: bool = False,
) -> Bench:
    """Times steps on random images: eager, on a GPU captured and compiled, and several learners side by side.

    With `levers`, each thing that makes a step on a GPU fast is left out in turn too.
    """
    device = torch.device(device)
    gpu = device.type == "cuda"
    tested = 10_000 if gpu else 100
    setting = Setting(random_stream(classes, size, tested), method, network, device, precision)
    start_s = _start(setting)
    timings = []
    if gpu:
        timings.append(_time_learners(setting, 1, steps, "eager"))
        with without("compiling"):
            timings.append(_time_learners(setting, 1, steps, "captured"))
        for lever in SWITCHES if levers else ():
            if lever != "compiling":  # is the row before
                with without(lever):
                    timings.append(_time_learners(setting, 1, steps, f"without {SWITCHES[lever]}"))
    how = "compiled" if gpu else "eager"
    one, floor_ms, bare_ms = _time_one(setting, steps, how)
    timings += [one, *(_time_learners(setting, n, steps, how) for n in cohorts if n != 1)]
    learner = setting.learner()
    views, score_s = _score(learner)
    return Bench(
        method, network, learner.training.batch, timings, floor_ms, bare_ms,
        start_s=start_s, score_s=score_s, tested=tested, views=views,
        device={**device_facts(device), "precision": precision},
        versions=provenance.versions(), code=provenance.code_identity(),
    )  # fmt: skip


def random_stream(classes: int, size: int, tested: int = 100) -> Stream:
    """Random images of one task."""
    draw = torch.Generator().manual_seed(0)
    n = max(2048, tested)
    images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=draw)
    labels = torch.arange(n) % classes
    names = tuple(map(str, range(classes)))
    return class_il(Dataset("random", images, labels, images[:tested], labels[:tested], names), tasks=1)


def _settled(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _start(setting: Setting) -> float:
    """Seconds from making a learner until a step is done that is like all later ones."""
    begun = _settled(setting.device)
    moments = setting.learner(capture=True).learn()
    for _ in range(5 if setting.device.type == "cuda" else 1):  # nothing to recall, three eager, one recorded
        next(moments)
    return _settled(setting.device) - begun


def _score(learner: Learner) -> tuple[int, float]:
    """How many memories there are, and seconds for all of them to answer for all test images."""
    next(learner.learn())  # so that there is something to recall
    times = []
    for _ in range(2):  # libraries choose their kernels in the first
        begun = _settled(learner.device)
        learner.score()
        times.append(_settled(learner.device) - begun)
    return len(learner.scores), times[-1]


def _time_learners(setting: Setting, n: int, steps: int, how: str) -> Timing:
    work, mib = _stepping(setting, n, how)
    (ms,) = _medians([work], steps, setting.device)
    return _timing(setting, n, how, ms / n, mib)


def _time_one(setting: Setting, steps: int, how: str) -> tuple[Timing, float, float]:
    """One learner, the convolutions and the networks of its step: in turn, because a machine's pace drifts."""
    work, mib = _stepping(setting, 1, how)
    learner = setting.learner()
    with _freely():
        floor = _warm(as_graph(convolutions(learner), setting.device))
    bare = _warm(as_graph(networks_alone(learner), setting.device))
    ms, floor_ms, bare_ms = _medians([work, floor, bare], steps, setting.device)
    return _timing(setting, 1, how, ms, mib), floor_ms, bare_ms


def _stepping(setting: Setting, n: int, how: str) -> tuple[Callable[[], None], float | None]:
    """A step of each of n learners, and how much GPU memory they take."""
    gpu = setting.device.type == "cuda"
    if gpu:
        gc.collect()  # learners and their graphs know each other
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setting.device)
    going = [setting.learner(seed, capture=how != "eager").learn() for seed in range(n)]

    def together() -> None:
        for moments in going:
            while next(moments) != "step":
                pass

    return _warm(together), torch.cuda.max_memory_allocated(setting.device) / 2**20 if gpu else None


def _timing(setting: Setting, n: int, how: str, ms: float, mib: float | None) -> Timing:
    what = f"{how}, {n} learners side by side" if n > 1 else f"{how}, one learner"
    return Timing(what, ms, setting.resolved()[1].batch / ms * 1000, mib)


def _warm(work: Callable[[], None]) -> Callable[[], None]:
    """The same work, done a few times."""
    for _ in range(WARM):
        work()
    return work


def _medians(works: Sequence[Callable[[], None]], steps: int, device: torch.device) -> list[float]:
    """Milliseconds of each, timed in turn: on a GPU many steps at a time, whose launches must not be waited for."""
    times: list[list[float]] = [[] for _ in works]
    each = max(1, steps // 5) if device.type == "cuda" else 1
    for _ in range(5 if device.type == "cuda" else steps):
        for work, found in zip(works, times, strict=True):
            start = _settled(device)
            for _ in range(each):
                work()
            found.append((_settled(device) - start) / each)
    return [1000 * statistics.median(found) for found in times]


@contextmanager
def _freely() -> Iterator[None]:
    """In here the library may choose kernels whose sums have no order: a floor is as low as it can be."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before
