"""On a GPU: a step replayed as a graph has the effect of the step itself."""

from collections.abc import Iterator

import pytest
import torch

from scommer.data import load
from scommer.learner import Learner
from scommer.methods import METHODS
from scommer.presets import resolve
from scommer.streams import class_il

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def _deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def learner(method: str, capture: bool) -> Learner:
    made, training = resolve("s-digits", method, 30, "official", {"epochs": 2})
    stream = class_il(load("digits"), tasks=5)
    return Learner(stream, made, training, buffer=30, seed=1, device="cuda", capture=capture)


def advance(learner: Learner, steps: int) -> dict[str, torch.Tensor]:
    moments = learner.learn()
    while steps:
        steps -= next(moments) == "step"
    return {name: t.clone() for name, t in learner.state()[0].items() if not name.startswith("scores")}


@pytest.mark.parametrize("method", METHODS)
def test_captured_equals_eager_over_fifty_steps(method: str) -> None:
    graph, plain = (advance(learner(method, capture), 50) for capture in (True, False))
    assert graph.keys() == plain.keys()
    different = [name for name in plain if not torch.equal(graph[name].cpu(), plain[name].cpu())]
    assert different == []


def test_a_resumed_run_equals_an_uninterrupted_one() -> None:
    whole = advance(learner("scommer", True), 60)
    first = learner("scommer", True)
    advance(first, 25)
    tensors, values = first.state()
    second = learner("scommer", True)
    second.restore({name: t.cpu() for name, t in tensors.items()}, values)
    rest = advance(second, 35)
    different = [name for name in whole if not torch.equal(whole[name].cpu(), rest[name].cpu())]
    assert different == []
