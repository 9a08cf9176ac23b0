"""Weights that were kept answer as they were scored."""

from pathlib import Path

import numpy as np
import pytest

from scommer import Experiment, load_trained, run
from scommer.data import load
from scommer.errors import UsageError

QUICK = {"epochs": 2, "width": 6}


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
        by_task = [100 * np.mean((answers == y)[np.isin(y, task)]) for task in record.stream["tasks"]]
        np.testing.assert_allclose(by_task, record.matrix(memory)[-1], atol=1e-6)


def test_wrong_wishes_are_refused(tmp_path: Path) -> None:
    record = run(Experiment("s-digits", "sgd", settings=QUICK | {"epochs": 1}), out=tmp_path)
    with pytest.raises(UsageError, match="--save-weights"):
        load_trained(tmp_path / record.name)
    run(Experiment("s-digits", "sgd", settings=QUICK | {"epochs": 1}), out=tmp_path, weights=True)
    with pytest.raises(UsageError, match="unknown memory 'long_term'"):
        load_trained(tmp_path / record.name, "long_term")
    with pytest.raises(UsageError, match=r"these images are 3 × 8 × 8 .* those it has learned are 1 × 8 × 8"):
        load_trained(tmp_path / record.name).predict(np.zeros((2, 3, 8, 8), np.float32))
