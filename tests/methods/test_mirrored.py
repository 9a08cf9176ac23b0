"""Predicting from an image and its mirror image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from real_rows import DX, DY

from scommer import Experiment, LifelongClassifier, class_il, load_trained, run
from scommer.data import load
from scommer.engine.learner import Learner
from scommer.engine.state import restore, state_of
from scommer.errors import UsageError
from scommer.runs.experiment import prepare

SETTINGS = {"epochs": 1, "width": 4}


def test_only_predictions_change(tmp_path: Path) -> None:
    plain, mirrored = (
        run(Experiment("s-digits", "scommer", 50, settings={**SETTINGS, "mirrored": m}), out=tmp_path, weights=True)
        for m in (False, True)
    )
    assert "long_term/single" not in plain.matrices
    assert mirrored.matrices["long_term/single"] == plain.matrices["long_term"]
    assert mirrored.matrices["long_term"] != plain.matrices["long_term"]
    assert mirrored.matrices["working"] != plain.matrices["working"]

    data = load("digits")
    x = data.test_images
    for memory in ("long_term", "working"):
        one, both = (load_trained(tmp_path / r.name, memory) for r in (plain, mirrored))
        torch.testing.assert_close(both.respond(x), (one.respond(x) + one.respond(x.flip(3))) / 2, rtol=1e-4, atol=1e-5)
        hits = both.predict(x) == data.test_labels
        by_task = [100 * float(hits[t.test].double().mean()) for t in class_il(data, tasks=5).tasks]
        assert mirrored.matrix(memory)[-1] == pytest.approx(by_task)


def test_a_stopped_run_resumes(tmp_path: Path) -> None:
    experiment = Experiment("s-digits", "scommer", 50, settings={**SETTINGS, "mirrored": True})
    plan = prepare(experiment)
    whole, first, second = (Learner(plan.stream, plan.method, plan.training, buffer=50) for _ in range(3))
    for _ in whole.learn():
        pass
    for moment in first.learn():
        if moment == "task":
            break
    restore(second, *state_of(first))
    for _ in second.learn():
        pass
    assert whole.scores.keys() == second.scores.keys() > {"long_term", "long_term/single"}
    for view, rows in whole.scores.items():
        assert [r.class_il.tolist() for r in rows] == [r.class_il.tolist() for r in second.scores[view]]


def test_a_classifier_answers_an_image_as_its_mirror_image(tmp_path: Path) -> None:
    for mirrored in (False, True):
        settings = {**SETTINGS, "mirrored": mirrored, "flip": True}
        model = LifelongClassifier(settings=settings, device="cpu").fit(DX[:200], DY[:200])
        model.save(tmp_path / "model")
        model = LifelongClassifier.load(tmp_path / "model", device="cpu")
        there, back = (model.predict_proba(x) for x in (DX[:50], DX[:50, :, ::-1].copy()))
        assert np.allclose(there, back, atol=1e-5) == mirrored


@pytest.mark.parametrize("setting", ["flip", "mirrored", "pad"])
def test_rows_have_no_mirror_image(setting: str) -> None:
    model = LifelongClassifier(method="er", settings={"epochs": 1, setting: True if setting != "pad" else 2})
    with pytest.raises(UsageError, match="rows of features cannot be shifted or mirrored: set pad=0"):
        model.fit(np.random.default_rng(0).normal(size=(20, 5)), [0, 1] * 10)
