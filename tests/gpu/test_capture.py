"""On a GPU: a captured step has the same effect as an eager one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from scommer.bench.timing import bench
from scommer.data import load
from scommer.device import Precision
from scommer.engine.learner import Learner
from scommer.engine.state import restore, state_of
from scommer.gpu.switches import SWITCHES, Switch, without
from scommer.lifelong.classifier import LifelongClassifier
from scommer.methods import METHODS
from scommer.runs.experiment import Experiment
from scommer.runs.presets import resolve
from scommer.runs.runner import run
from scommer.streams import class_il

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # torch.compile emits some
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

State = dict[str, torch.Tensor]
PLUS: dict[str, Any] = {
    "horizon": 0.6, "recent": 0.2, "balance": 2.0, "teach": 0.15, "teacher": "snapshot", "balanced": True,
    "turned": 0.3,
}  # fmt: skip
PLUSES = (PLUS, PLUS | {"teacher": "long_term"}, PLUS | {"teach": 0.0}, PLUS | {"turned": 0.0})


@pytest.fixture(autouse=True)
def _deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _rehearsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test rehearse: what one test compiled ahead is still to be compiled for the next."""
    monkeypatch.setattr("scommer.engine.rehearsal._rehearsed", set())


@pytest.fixture
def uncompiled() -> Iterator[None]:
    """Switch compilation off: compiled functions round differently."""
    with without("compiling"):
        yield


def learner(
    method: str, capture: bool = True, seed: int = 1, precision: Precision = "fp32", **settings: Any
) -> Learner:
    made, training = resolve("s-digits", method, 30, "official", {"epochs": 2, "batch": 32, **settings})
    stream = class_il(load("digits"), tasks=5)
    return Learner(stream, made, training, buffer=30, seed=seed, device="cuda", precision=precision, capture=capture)


def state(learner: Learner) -> State:
    tensors, _ = state_of(learner)
    return {name: t.clone().cpu() for name, t in tensors.items() if not name.startswith("scores")}


def advance(learner: Learner, steps: int) -> State:
    moments = learner.learn()
    while learner.steps[0] < steps:
        next(moments)
    return state(learner)


def different(a: State, b: State) -> list[str]:
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("method", "settings"), [*((m, {}) for m in METHODS), *(("scommer", s) for s in PLUSES)])
def test_captured_equals_eager_over_fifty_steps(method: str, settings: dict[str, Any]) -> None:
    graph, plain = (advance(learner(method, capture, **settings), 50) for capture in (True, False))
    assert different(graph, plain) == []


@pytest.mark.parametrize("method", ["scommer", "sgd"])
def test_a_resumed_run_equals_an_uninterrupted_one(method: str) -> None:
    whole = advance(learner(method), 60)
    first = learner(method)
    advance(first, 25)
    tensors, values = state_of(first)
    second = learner(method)
    restore(second, {name: t.cpu() for name, t in tensors.items()}, values)
    assert different(whole, advance(second, 60)) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_rehearsal_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed = advance(learner(method, precision="bf16"), 12)
    monkeypatch.setattr("scommer.engine.rehearsal.can_compile_ahead", lambda _: False)
    assert different(rehearsed, advance(learner(method, precision="bf16"), 12)) == []


def test_kernels_are_compiled_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    ahead: list[str] = []
    late: list[str] = []

    def note(*, is_manual_warmup: bool, repr: str, **_: object) -> None:
        (ahead if is_manual_warmup else late).append(repr.split("[")[0])

    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", note)
    # Sizes of no other test. The first batch fills memory, so that all later steps are alike.
    advance(learner("scommer", precision="bf16", batch=31, width=40), 8)
    assert ahead
    assert sorted(set(late)) == []


def test_steps_and_epochs_within_a_task_do_not_wait_for_the_gpu() -> None:
    made = learner("scommer", epochs=5)
    moments = made.learn()
    while made.epoch < 2:  # the step is captured by then
        next(moments)
    torch.cuda.set_sync_debug_mode("error")
    try:
        while made.epoch < 4:
            next(moments)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert made.task == 0
    assert len(made.curve) == 4  # all are read when they are needed


@pytest.mark.usefixtures("uncompiled")
def test_learners_in_one_process_equal_single_learners() -> None:
    settings = [("scommer", 1), ("scommer", 2), ("cls-er", 1)]
    alone = [advance(learner(method, seed=seed), 40) for method, seed in settings]
    learners = [learner(method, seed=seed) for method, seed in settings]
    running = [each.learn() for each in learners]
    while learners[0].steps[0] < 40:
        for moments in running:
            next(moments)
    for each, expected in zip(learners, alone, strict=True):
        assert different(state(each), expected) == []


@pytest.mark.parametrize("method", METHODS)
def test_compiled_steps_are_close_to_eager_steps(method: str) -> None:
    """Only a few steps, because rounding differences grow."""
    graph, plain = (advance(learner(method, capture), 8)["memories/working/theta"] for capture in (True, False))
    assert (graph - plain).norm() / plain.norm() < 1e-4


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_optimisation_preserves_the_result(switch: Switch) -> None:
    fast = advance(learner("scommer"), 8)["memories/working/theta"]
    with without(switch):
        plain = advance(learner("scommer"), 8)["memories/working/theta"]
    assert (fast - plain).norm() / plain.norm() < 1e-4


@pytest.mark.parametrize(
    "settings", [{"momentum": 0.9}, {"weight_decay": 1e-3}, {"network": "mlp"}, {"dropout": "none"}]
)
def test_other_optimisers_and_networks_are_captured_too(settings: dict[str, Any]) -> None:
    method = "scommer" if "dropout" in settings else "er"
    learners = (learner(method, capture, **settings) for capture in (True, False))
    graph, plain = (advance(each, 8)["memories/working/theta"] for each in learners)
    assert (graph - plain).norm() / plain.norm() < 1e-4


@pytest.mark.parametrize(
    "settings",
    [{}, {"joint_batch": True}, {"replay_dropout": True}, {"activate": "block"}, {"threshold": "k-1"}, PLUSES[-1]],
    ids=str,
)
def test_two_steps_on_a_gpu_equal_two_steps_on_a_cpu(settings: dict[str, Any]) -> None:
    """The fused kernels against plain PyTorch, through a whole network and its long-term memory.

    No draw matters: the second step recalls all images of the first, only the first units can be retained, and every
    step consolidates.
    """
    fixed = {"pad": 0, "r": 1.0, "network": "resnet18", "width": 16, "active": [0.9, 0.9, 0.9, 0.8]}
    made, training = resolve("s-digits", "scommer", 64, "official", fixed | settings)
    stream = class_il(load("digits"), tasks=5)
    both = [
        advance(Learner(stream, made, training, buffer=64, seed=1, device=device, capture=False), 2)
        for device in ("cpu", "cuda")
    ]
    for name in ("working/theta", "working/statistics", "long_term/theta", "long_term/statistics"):
        cpu, gpu = (s[f"memories/{name}"] for s in both)
        assert (cpu - gpu).norm() / cpu.norm() < 1e-4


def test_bf16_is_close_to_fp32() -> None:
    half, full = (advance(learner("scommer", precision=p, network="small"), 5) for p in ("bf16", "fp32"))
    a, b = half["memories/working/theta"], full["memories/working/theta"]
    assert 0 < (a - b).norm() / b.norm() < 0.02


WIDE = {"precision": "bf16", "network": "small", "width": 64}  # a width that the convolution kernels support


@pytest.mark.usefixtures("uncompiled")
def test_captured_equals_eager_in_bf16() -> None:
    graph, plain = (advance(learner("scommer", capture, **WIDE), 30) for capture in (True, False))
    assert different(graph, plain) == []


def test_custom_convolutions_are_close_to_those_of_cudnn() -> None:
    """Compare the change of weights in one step, which is proportional to the gradient."""

    def change() -> torch.Tensor:
        made = learner("scommer", **WIDE)
        before = state(made)["memories/working/theta"]
        return advance(made, 1)["memories/working/theta"] - before

    own = change()
    with without("convolutions"):
        library = change()
    assert 0 < (own - library).norm() / library.norm() < 0.05


def test_a_loss_over_two_passes_sums_both_gradients_in_bf16() -> None:
    working = learner("er", **WIDE).memories.working
    x = torch.randn(6, 1, 8, 8, device="cuda").to(torch.bfloat16, memory_format=torch.channels_last)
    passes = [lambda: working(x[:2]).logits.sum(), lambda: working(x[2:]).logits.square().sum()]
    single = []
    for loss in passes:
        working.backward(loss())
        working.update(0.0)
        single.append(working.gradient.clone())
    working.backward(passes[0]() + passes[1]())
    working.update(0.0)
    both = single[0] + single[1]
    assert (working.gradient - both).norm() / both.norm() < 0.02


@pytest.mark.parametrize("settings", [{}, {"network": "resnet18", "active": [0.9, 0.9, 0.9, 0.8]}])
def test_a_run_repeats_bit_for_bit(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run as users start it, with all optimisations."""
    torch.use_deterministic_algorithms(False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)  # the run sets it itself
    experiment = Experiment("s-digits", "scommer", 30, settings={"epochs": 2, "warmup": 0, **settings})
    for folder in ("first", "second"):
        run(experiment, out=tmp_path / folder, device="cuda", weights=True)
    one, other = (safetensors.torch.load_file(path) for path in sorted(tmp_path.rglob("weights.safetensors")))
    assert different(one, other) == []


def test_bench_on_a_gpu() -> None:
    measured = bench("scommer", network="small", device="cuda", precision="bf16", steps=5, cohorts=(1, 2))
    assert all(t.ms > 0 for t in measured.timings)
    assert measured.floor_ms > 0
    assert measured.bare_ms > 0


def test_a_classifier_moves_from_a_gpu_to_a_cpu_and_back(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(False)
    data = load("digits")
    halves = [data.train_labels < 5, data.train_labels >= 5]
    model = LifelongClassifier(10, buffer=50, settings={"epochs": 10}, device="cuda")
    for mask, device in zip([*halves, halves[0]], ("cpu", "cuda", "cpu"), strict=True):
        model.partial_fit(data.train_images[mask], data.train_labels[mask])
        model.save(tmp_path / "model")
        here, model = model, LifelongClassifier.load(tmp_path / "model", device=device)
        same = here.predict(data.test_images) == model.predict(data.test_images)
        assert same.mean() > 0.98  # precisions differ
    assert model.score(data.test_images, data.test_labels) > 0.7


def test_a_run_in_bf16_learns(tmp_path: Path) -> None:
    experiment = Experiment("s-digits", "scommer", 30)
    record = run(experiment, out=tmp_path, device="cuda", precision="bf16", weights=True)
    assert record.device.precision == "bf16"
    assert record.scores["long_term"]["class_il"]["accuracy"] > 60
