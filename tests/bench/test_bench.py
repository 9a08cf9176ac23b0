"""The bench times what it claims to: steps, the networks of a step, and their convolutions."""

import json
import re
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from calling import call, exit_code
from torch.utils._python_dispatch import TorchDispatchMode

from scommer.bench import timing
from scommer.bench.floor import convolutions, networks_alone
from scommer.bench.timing import Setup, bench, random_stream
from scommer.engine.learner import Learner


class ConvolutionCounter(TorchDispatchMode):
    """Counts convolutions, and their gradients of input and weight, by the number of images."""

    def __init__(self) -> None:
        super().__init__()
        self.images: Counter[tuple[str, int]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        if name == "convolution":
            self.images["forward", len(args[0])] += 1
        if name == "convolution_backward":
            for kind, requested in zip(("input", "weight"), args[-1], strict=False):
                self.images[kind, len(args[1])] += requested
        return func(*args, **(kwargs or {}))


def count_convolutions(work: Any) -> dict[tuple[str, int], int]:
    with ConvolutionCounter() as counter:
        work()
    return dict(counter.images)


def small(method: str) -> Learner:
    return Setup(random_stream(10, 8), method, "small", torch.device("cpu"), "fp32").learner()


def test_a_teacher_of_task_images_counts_in_the_networks_alone() -> None:
    setup = Setup(random_stream(10, 8), "scommer", "small", torch.device("cpu"), "fp32", "plus")
    learner = setup.learner()
    moments = learner.learn()
    next(moments)
    expected = count_convolutions(lambda: next(moments))
    assert expected["forward", 64] == 12  # working memory's, and long-term memory's for recalled and task images
    assert count_convolutions(networks_alone(learner)) == expected


# The small network has a stem, whose input needs no gradient, two blocks of two convolutions, and a shortcut.
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sgd", {("forward", 32): 6, ("input", 32): 5, ("weight", 32): 6}),
        ("er", {("forward", 64): 6, ("input", 64): 5, ("weight", 64): 6}),
        ("der++", {("forward", 96): 6, ("input", 96): 5, ("weight", 96): 6}),
        ("scommer", {("forward", 64): 6, ("input", 64): 5, ("weight", 64): 6, ("forward", 32): 6}),
        ("cls-er", {("forward", 96): 6, ("input", 96): 5, ("weight", 96): 6, ("forward", 32): 12}),
    ],
)
def test_floor_and_networks_alone_run_the_convolutions_of_a_step(method: str, expected: dict[Any, int]) -> None:
    learner = small(method)
    moments = learner.learn()
    next(moments)  # nothing to recall yet
    assert count_convolutions(lambda: next(moments)) == expected
    assert count_convolutions(networks_alone(learner)) == expected
    floor = count_convolutions(convolutions(learner))
    images = Counter[str]()
    for (name, n), times in floor.items():
        images[name] += n * times
    assert images == {name: sum(n * k for (m, n), k in expected.items() if m == name) for name in images}


def test_bench_fills_all_fields() -> None:
    measured = asdict(bench("er", network="small", size=8, steps=5, cohorts=(1, 2)))
    assert [t["what"] for t in measured["timings"]] == ["eager, one learner", "eager, 2 learners side by side"]
    for t in measured["timings"]:
        assert t["ms"] > 0
        assert t["images_per_second"] == pytest.approx(32 / t["ms"] * 1000)
    assert measured["floor_ms"] > 0
    assert measured["bare_ms"] > 0
    assert measured["start_s"] > 0
    assert (measured["tested"], measured["views"]) == (100, 1)
    assert measured["score_s"] > 0
    assert measured["device"]["type"] == "cpu"
    assert measured["versions"]["torch"] == torch.__version__


def test_another_variant_is_timed_beside_the_published_one() -> None:
    measured = bench("scommer", network="small", size=8, steps=5, cohorts=(2,), variant="plus")
    assert measured.method == "scommer, plus"
    assert [t.what for t in measured.timings] == [
        f"{variant}: eager, {learners}"
        for learners in ("one learner", "2 learners side by side")
        for variant in ("plus", "official")
    ]
    one, _, two, _ = (t.images_per_second * t.ms for t in measured.timings)
    assert one == pytest.approx(two) == pytest.approx(32_000)


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "-m", "sgd", "--network", "mlp", "--steps", "5", "--device", "cpu"]
    code, out, _ = call(capsys, *words, "--json")
    assert code == 0
    assert json.loads(out)["method"] == "sgd"
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert "networks alone" in out


@pytest.mark.parametrize("words", [["--cohorts", "2", "0"], ["--steps", "0"], ["--classes", "1"]])
def test_invalid_numbers_are_usage_errors(words: list[str]) -> None:
    assert exit_code("bench", *words) == 2


def test_the_time_of_a_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that sleeps takes at least that long."""
    step = Learner.step

    def slow(learner: Learner, *arguments: object) -> None:
        time.sleep(0.05)
        step(learner, *arguments)  # type: ignore[arg-type]

    quick = timing.step_ms("er", "small", torch.device("cpu"), "fp32")
    monkeypatch.setattr(Learner, "step", slow)
    assert 50 <= timing.step_ms("er", "small", torch.device("cpu"), "fp32") < 50 + 20 * quick


def test_a_profile_has_every_convolution_of_a_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    moments = small("scommer").learn()
    next(moments)
    counted = count_convolutions(lambda: next(moments))
    forward, backward = (sum(n for (kind, _), n in counted.items() if (kind == "forward") == f) for f in (True, False))
    trace = tmp_path / "new" / "trace.json"
    words = ["bench", "--profile", "--network", "small", "--device", "cpu", "--steps", "2", "--trace", str(trace)]
    calls = {cost["name"]: cost["calls"] for cost in json.loads(call(capsys, *words, "--json")[1])}
    assert calls["aten::mkldnn_convolution"] == forward
    assert calls["aten::convolution_backward"] == backward
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("aten::mkldnn_convolution") == 2 * forward
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert re.search(rf"aten::convolution_backward +│ +{backward}\.0 │ +\d+\.\d+ │", out)


def test_a_trace_needs_a_profile() -> None:
    assert exit_code("bench", "--trace", "trace.json") == 2
