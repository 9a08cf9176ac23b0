"""Saved weights predict as they were scored."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from scommer import Experiment, load_trained, run
from scommer.data import load
from scommer.engine.evaluate import images_per_pass
from scommer.errors import UsageError
from scommer.methods import METHODS
from scommer.methods.er import ER

QUICK = {"epochs": 2, "width": 6}
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("scommer", {"warmup": 0, "alpha": 0.9}),
        ("scommer", {"statistics": "recalibrated", "alpha": 0.9}),
        ("scommer", {"sparse": False, "alpha": 0.9}),
        ("scommer", {"network": "mlp", "width": 32, "alpha": 0.9}),
        ("cls-er", {"alpha": 0.9}),
    ],
)
def test_a_loaded_memory_scores_what_the_record_says(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    record = run(Experiment("s-digits", method, 30, settings=QUICK | settings), out=tmp_path, weights=True)
    digits = load("digits")
    x, y = digits.test_images, digits.test_labels.numpy()
    for memory in (None, "working"):
        answers = load_trained(tmp_path / record.name, memory).predict(x).numpy()
        by_task = [100 * np.mean((answers == y)[np.isin(y, task)]) for task in record.stream.tasks]
        np.testing.assert_allclose(by_task, record.matrix(memory)[-1], atol=1e-6)


@dataclass(frozen=True)
class Narrow(ER):
    """ER with a sparse network, which does not show in its settings."""

    def network_settings(self) -> dict[str, object]:
        return {"active": 0.3}


def test_your_own_sparse_method_predicts_as_it_was_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "narrow", Narrow)
    record = run(Experiment("s-digits", "narrow", 30, settings=QUICK), out=tmp_path, weights=True)
    digits = load("digits")
    x, y = digits.test_images, digits.test_labels.numpy()
    answers = load_trained(tmp_path / record.name).predict(x).numpy()
    assert 100 * np.mean((answers == y)[np.isin(y, [8, 9])]) == pytest.approx(record.matrix()[-1, -1])
    monkeypatch.delitem(METHODS, "narrow")  # as in another process
    with pytest.raises(UsageError, match="unknown method 'narrow'"):
        load_trained(tmp_path / record.name)


def test_fewer_large_images_are_processed_at_once() -> None:
    assert images_per_pass(torch.zeros(9, 1, 8, 8), CPU) == images_per_pass(torch.zeros(2, 3, 32, 32), CPU) == 800
    assert images_per_pass(torch.zeros(2, 3, 64, 64), CPU) == 200
    assert images_per_pass(torch.zeros(1, 1, 2000, 2000), CPU) == 1


def test_damaged_or_unfitting_weights_are_errors(tmp_path: Path) -> None:
    sgd = Experiment("s-digits", "sgd", settings=QUICK | {"epochs": 1})
    record = run(sgd, out=tmp_path, weights=True)
    kept = tmp_path / record.name / "weights.safetensors"
    whole = kept.read_bytes()
    for content in (whole[: len(whole) // 2], b""):
        kept.write_bytes(content)
        with pytest.raises(UsageError, match=r"cannot read .*weights.safetensors .*--fresh --save-weights"):
            load_trained(tmp_path / record.name)
    kept.write_bytes(whole)
    record.settings["width"] = 7
    record.save(tmp_path / record.name)
    with pytest.raises(UsageError, match="these weights do not fit the network small"):
        load_trained(tmp_path / record.name)


def test_missing_weights_and_unknown_memories_are_errors(tmp_path: Path) -> None:
    record = run(Experiment("s-digits", "sgd", settings=QUICK | {"epochs": 1}), out=tmp_path)
    with pytest.raises(UsageError, match="--save-weights"):
        load_trained(tmp_path / record.name)
    run(Experiment("s-digits", "sgd", settings=QUICK | {"epochs": 1}), out=tmp_path, weights=True)
    with pytest.raises(UsageError, match="unknown memory 'long_term'"):
        load_trained(tmp_path / record.name, "long_term")
    with pytest.raises(UsageError, match=r"these images are 3 × 8 × 8 .* expected 1 × 8 × 8"):
        load_trained(tmp_path / record.name).predict(np.zeros((2, 3, 8, 8), np.float32))
