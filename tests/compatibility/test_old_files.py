"""Files written at d8b2353 still load: records, weights, checkpoints and classifiers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from scommer import Experiment, LifelongClassifier, Record, load_trained, run
from scommer.streams import load

FILES = Path(__file__).parent / "files"
NAMES = {
    "scommer": "s-digits-scommer-10-seed0-cf88e7",
    "der++": "s-digits-der++-10-seed0-04080e",
    "cls-er": "s-digits-cls-er-10-seed0-638eaf",
}
OLD_SOURCES = "70f35864d7501aea"  # the hash of the package's sources at d8b2353
FINISHED_TASKS = 2  # when the checkpoints were written
ONE_IMAGE = 100 / 71 + 1e-4  # percent of the smallest test set; another CPU may break a tie differently

methods = pytest.mark.parametrize("method", NAMES)
classifiers = pytest.mark.parametrize("method", ["scommer", "der++"])


def experiment(method: str) -> Experiment:
    settings: dict[str, Any] = {"network": "small", "width": 4, "epochs": 2}
    if method == "scommer":
        settings["warmup"] = 0
    return Experiment("s-digits", method, buffer=10, settings=settings)


def stored(folder: Path) -> Any:
    return json.loads((folder / "record.json").read_text())


@methods
def test_records_load(method: str) -> None:
    folder = FILES / "finished" / NAMES[method]
    record, values = Record.load(folder), stored(folder)
    assert record.name == values["name"] == NAMES[method]
    assert record.inference == values["inference"]
    for memory, matrices in values["matrices"].items():
        for setting, matrix in matrices.items():
            assert record.matrix(memory, setting).tolist() == matrix
            assert record.accuracy(memory, setting) == pytest.approx(np.mean(matrix[-1]), abs=1e-5)
    with np.load(folder / "arrays.npz") as arrays:
        assert set(record.arrays) == set(arrays)
        assert all(np.array_equal(record.arrays[name], arrays[name]) for name in arrays)


@methods
def test_weights_answer_as_the_record_says(method: str) -> None:
    folder = FILES / "finished" / NAMES[method]
    stream, final = load("s-digits"), Record.load(folder).matrix()[-1]
    found = load_trained(folder).predict(stream.data.test_images)
    right = (found == stream.data.test_labels).double()
    accuracies = [100 * float(right[task.test].mean()) for task in stream.tasks]
    assert accuracies == pytest.approx(final.tolist(), abs=ONE_IMAGE)


@methods
def test_a_finished_run_is_not_repeated(method: str, tmp_path: Path) -> None:
    shutil.copytree(FILES / "finished", tmp_path, dirs_exist_ok=True)
    record = run(experiment(method), out=tmp_path, device="cpu")
    assert record.name == NAMES[method]
    assert stored(tmp_path / NAMES[method]) == stored(FILES / "finished" / NAMES[method])  # times and all


@methods
def test_a_checkpoint_resumes(method: str, tmp_path: Path) -> None:
    shutil.copytree(FILES / "checkpoints", tmp_path, dirs_exist_ok=True)
    run(experiment(method), out=tmp_path, device="cpu")
    resumed, finished = stored(tmp_path / NAMES[method]), stored(FILES / "finished" / NAMES[method])
    assert resumed["code"]["earlier"] == [OLD_SOURCES]  # so it did not start over
    assert resumed["untrained"] == finished["untrained"]
    assert resumed["matrices"].keys() == finished["matrices"].keys()
    for memory, matrices in finished["matrices"].items():
        for setting, matrix in matrices.items():
            found = resumed["matrices"][memory][setting]
            assert found[:FINISHED_TASKS] == matrix[:FINISHED_TASKS]
            # 0 on the same CPU with one thread; others round differently
            difference = np.abs(np.array(found) - matrix)
            assert difference.mean() < 5, f"{memory}, {setting}"


def answers(method: str) -> dict[str, np.ndarray]:
    with np.load(FILES / f"classifier-{method}-answers.npz") as arrays:
        return dict(arrays)


def task(*digits: int) -> tuple[np.ndarray, list[str]]:
    """Images of these digits and their labels, "a" for 0."""
    images, labels = load_digits(return_X_y=True)
    chosen = np.isin(labels, digits)
    return (images[chosen].reshape(-1, 8, 8) / 16).astype(np.float32), ["abcdef"[c] for c in labels[chosen]]


@classifiers
def test_a_classifier_answers_as_before(method: str) -> None:
    model, expected = LifelongClassifier.load(FILES / f"classifier-{method}.safetensors", device="cpu"), answers(method)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert [done["classes"] for done in model.history_] == [["a", "b"]]
    assert np.allclose(model.predict_proba(expected["images"]), expected["p"], rtol=1e-4, atol=0)
    model.add_classes(["e", "f"])
    widened = np.pad(expected["p"], ((0, 0), (0, 2)))
    assert np.allclose(model.predict_proba(expected["images"]), widened, rtol=1e-4, atol=0)


@classifiers
def test_a_classifier_keeps_learning_as_before(method: str, tmp_path: Path) -> None:
    model, expected = LifelongClassifier.load(FILES / f"classifier-{method}.safetensors", device="cpu"), answers(method)
    model.partial_fit(*task(2, 3)).add_classes(["e", "f"])
    model.save(tmp_path / "model")
    model = LifelongClassifier.load(tmp_path / "model", device="cpu").partial_fit(*task(4, 5))
    assert [done["classes"] for done in model.history_] == [["a", "b"], ["c", "d"], ["e", "f"]]
    difference = np.abs(model.predict_proba(expected["images"]) - expected["later"])
    assert difference.mean() < 0.02  # 0 on the same CPU with one thread; others round differently
