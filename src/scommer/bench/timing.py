"""Time a training step on this machine, and compare it with the passes and convolutions of its networks alone."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from scommer import provenance
from scommer.bench.floor import convolutions, networks_alone
from scommer.data import Dataset
from scommer.device import Precision, computing_on, device_facts
from scommer.engine.learner import Learner
from scommer.gpu.capture import EAGER_STEPS, as_graph
from scommer.gpu.switches import SWITCHES, without
from scommer.methods import Method
from scommer.methods.training import Training
from scommer.runs import presets
from scommer.streams import Stream, class_il

COHORTS = (1, 2, 4, 8)  # numbers of learners in one process
OFFICIAL = "official"
WARMUP = 6  # calls before timing, in which libraries choose their kernels and graphs are captured


@dataclass(frozen=True)
class Timing:
    """The median time of a step."""

    what: str
    ms: float  # for a step of one learner
    images_per_second: float  # of the task, over all learners
    mib: float | None = None  # peak GPU memory


@dataclass(frozen=True)
class Bench:
    """The timings of a method, and where they were measured. Records in JSON have these fields."""

    method: str
    network: str
    batch: int
    timings: list[Timing]
    floor_ms: float  # the convolutions of a step alone
    bare_ms: float  # the forward and backward passes of a step alone
    start_s: float  # from creating a learner to the end of its first step (on a GPU, of the first captured one)
    score_s: float  # evaluating all memories on all test images
    tested: int  # number of test images
    views: int  # number of evaluated memories
    device: dict[str, Any]
    versions: dict[str, str]
    code: dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """The learner to time."""

    stream: Stream
    method: str
    network: str
    device: torch.device
    precision: Precision
    variant: str = OFFICIAL

    def resolved(self) -> tuple[Method, Training]:
        """Return the method and training settings of S-CIFAR10."""
        return presets.resolve("s-cifar10", self.method, 200, self.variant, {"network": self.network, "epochs": 10**6})

    def learner(self, seed: int = 0, capture: bool = False) -> Learner:
        """Create a learner."""
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
    switches: bool = False,
    variant: str = OFFICIAL,
) -> Bench:
    """Time steps on random images: eager; on a GPU also captured and compiled; and several learners side by side.

    With `switches`, also time a step on a GPU without each of its optimisations in turn. A variant other than the
    published one is timed alternately with it.
    """
    device = torch.device(device)
    gpu = device.type == "cuda"
    tested = 10_000 if gpu else 100
    setup = Setup(random_stream(classes, size, tested), method, network, device, precision, variant)
    with computing_on(device, precision):
        start_s = _startup_seconds(setup)
        timings = []
        if gpu:
            timings += _time_learners([setup], 1, steps, "eager")
            with without("compiling"):
                timings += _time_learners([setup], 1, steps, "captured")
            for switch in SWITCHES if switches else ():
                if switch != "compiling":  # timed above, as "captured"
                    with without(switch):
                        timings += _time_learners([setup], 1, steps, f"without {SWITCHES[switch]}")
        how = "compiled" if gpu else "eager"
        setups = [setup] if variant == OFFICIAL else [setup, replace(setup, variant=OFFICIAL)]
        one, floor_ms, bare_ms = _time_one(setups, steps, how)
        timings += one
        for n in cohorts:
            timings += _time_learners(setups, n, steps, how) if n != 1 else []
        learner = setup.learner()
        views, score_s = _scoring_seconds(learner)
    what = method if variant == OFFICIAL else f"{method}, {variant}"
    return Bench(
        what, network, learner.training.batch, timings, floor_ms, bare_ms,
        start_s=start_s, score_s=score_s, tested=tested, views=views,
        device={**device_facts(device), "precision": precision},
        versions=provenance.versions(), code=provenance.code_identity(),
    )  # fmt: skip


def step_ms(method: str, network: str, device: torch.device, precision: Precision) -> float:
    """Return the time of a step of one learner, roughly: from a few steps."""
    setup = Setup(random_stream(10, 32, tested=1), method, network, device, precision)
    warmup, timed = (WARMUP, 20) if device.type == "cuda" else (2, 3)  # a step of ResNet-18 takes a CPU a second
    with computing_on(device, precision):
        moments = setup.learner(capture=True).learn()
        for _ in range(warmup):
            next(moments)
        start = now(device)
        for _ in range(timed):
            next(moments)
        return 1000 * (now(device) - start) / timed


def random_stream(classes: int, size: int, tested: int = 100) -> Stream:
    """Return a stream of one task with random images."""
    generator = torch.Generator().manual_seed(0)
    n = max(2048, tested)
    images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.arange(n) % classes
    names = tuple(map(str, range(classes)))
    return class_il(Dataset("random", images, labels, images[:tested], labels[:tested], names), tasks=1)


def now(device: torch.device) -> float:
    """Return the time in seconds once all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _startup_seconds(setup: Setup) -> float:
    """Return the time from creating a learner to the end of its first step (on a GPU, of the first captured one)."""
    start = now(setup.device)
    moments = setup.learner(capture=True).learn()
    steps = EAGER_STEPS + 2 if setup.device.type == "cuda" else 1  # without replay, eager ones, the captured one
    for _ in range(steps):
        next(moments)
    return now(setup.device) - start


def _scoring_seconds(learner: Learner) -> tuple[int, float]:
    """Return the number of memories, and the time to evaluate all of them on all test images."""
    next(learner.learn())  # fills episodic memory, which recalibration needs
    times = []
    for _ in range(2):  # libraries choose their kernels in the first round
        start = now(learner.device)
        learner.score()
        times.append(now(learner.device) - start)
    return len(learner.scores), times[-1]


def _time_learners(setups: Sequence[Setup], n: int, steps: int, how: str) -> list[Timing]:
    """Time n learners of each setup, in turn."""
    works, mib = zip(*(_steps(setup, n, how) for setup in setups), strict=True)
    ms = _median_ms(works, steps, setups[0].device)
    return _timings(setups, ms, mib, n, how)


def _time_one(setups: Sequence[Setup], steps: int, how: str) -> tuple[list[Timing], float, float]:
    """Time one learner of each setup, the convolutions of the first one's step, and its networks.

    All of them in turn, because a machine's speed drifts.
    """
    device = setups[0].device
    works, mib = zip(*(_steps(setup, 1, how) for setup in setups), strict=True)
    learner = setups[0].learner()
    with _nondeterministic_cudnn():  # the fastest kernels, for a floor that is as low as possible
        floor = _warmed_up(as_graph(convolutions(learner), device))
    bare = _warmed_up(as_graph(networks_alone(learner), device))
    *ms, floor_ms, bare_ms = _median_ms([*works, floor, bare], steps, device)
    return _timings(setups, ms, mib, 1, how), floor_ms, bare_ms


def _steps(setup: Setup, n: int, how: str) -> tuple[Callable[[], None], float | None]:
    """Return a function that takes a step with each of n learners, and their peak GPU memory in MiB."""
    gpu = setup.device.type == "cuda"
    if gpu:
        gc.collect()  # frees earlier learners, which are reference cycles with their graphs
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setup.device)
    learners = [setup.learner(seed, capture=how != "eager") for seed in range(n)]
    steps = [(moment for moment in learner.learn() if moment == "step") for learner in learners]

    def work() -> None:
        for moments in steps:
            next(moments)

    return _warmed_up(work), torch.cuda.max_memory_allocated(setup.device) / 2**20 if gpu else None


def _timings(
    setups: Sequence[Setup], times: Sequence[float], mib: Sequence[float | None], n: int, how: str
) -> list[Timing]:
    """Return the timings of a step of one of n learners, from the times that all n took."""
    what, made = f"{how}, {n} learners side by side" if n > 1 else f"{how}, one learner", []
    for setup, ms, used in zip(setups, times, mib, strict=True):
        named = f"{setup.variant}: {what}" if len(setups) > 1 else what
        made.append(Timing(named, ms / n, setup.resolved()[1].batch * n / ms * 1000, used))
    return made


def _warmed_up(work: Callable[[], None]) -> Callable[[], None]:
    """Run the work a few times and return it."""
    for _ in range(WARMUP):
        work()
    return work


def _median_ms(works: Sequence[Callable[[], None]], steps: int, device: torch.device) -> list[float]:
    """Time each function in turn. On a GPU, time many calls together, so that launches overlap with execution."""
    times: list[list[float]] = [[] for _ in works]
    calls = max(1, steps // 5) if device.type == "cuda" else 1
    for _ in range(5 if device.type == "cuda" else steps):
        for work, seconds in zip(works, times, strict=True):
            start = now(device)
            for _ in range(calls):
                work()
            seconds.append((now(device) - start) / calls)
    return [1000 * statistics.median(seconds) for seconds in times]


@contextmanager
def _nondeterministic_cudnn() -> Iterator[None]:
    """Let cuDNN choose kernels whose sums have no fixed order."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before
