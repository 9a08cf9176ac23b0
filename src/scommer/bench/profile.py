"""Where the time of a step goes: each kernel on a GPU, each operation on a CPU, from PyTorch's profiler."""

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from scommer.bench.timing import WARMUP, Setup, now
from scommer.device import computing_on
from scommer.files import write_output
from scommer.gpu.switches import without


@dataclass(frozen=True)
class Cost:
    """What all calls of a kernel or an operation take in a step, without what it calls in turn."""

    name: str
    calls: float
    ms: float


def profile_step(setup: Setup, steps: int, trace: Path | None = None) -> list[Cost]:
    """Return the costs of a step of one learner, highest first; write the profiler's trace if a file is given.

    There are no side streams, so the kernels run one after the other: together they take longer than a step does.
    """
    gpu = setup.device.type == "cuda"
    with computing_on(setup.device, setup.precision), without("side-streams"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler warns about itself
        moments = (moment for moment in setup.learner(capture=True).learn() if moment == "step")
        for _ in range(WARMUP):
            next(moments)
        now(setup.device)  # waits for these steps
        with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as profiler:
            for _ in range(steps):
                next(moments)
            now(setup.device)
        averages = profiler.key_averages()
        if trace:
            with tempfile.TemporaryDirectory() as folder:
                written = Path(folder, "trace.json")
                profiler.export_chrome_trace(str(written))
                write_output(trace, written.read_bytes())
    times = {e.key: (e.count, e.self_device_time_total if gpu else e.self_cpu_time_total) for e in averages}
    costs = [Cost(name, count / steps, us / 1000 / steps) for name, (count, us) in times.items() if us]
    return sorted(costs, key=lambda cost: cost.ms, reverse=True)
