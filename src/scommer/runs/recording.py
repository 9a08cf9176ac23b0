"""What a finished learner leaves behind: its record and its weights."""

from typing import Any

import numpy as np
import torch

from scommer import provenance
from scommer.device import device_facts
from scommer.engine.evaluate import summary
from scommer.engine.learner import Learner
from scommer.runs.experiment import Plan
from scommer.runs.record import Record


def final_weights(learner: Learner) -> dict[str, torch.Tensor]:
    """Named parameters and statistics of each memory, as it answers."""
    named = {}
    for view in learner.method.views(learner.memories, list(learner.calibration())):
        if "/" not in view.name:
            with view.memory.weights.using_statistics(view.statistics):
                for name, t in view.memory.weights.named(view.memory.network).items():
                    named[f"{view.name}.{name}"] = t.cpu().clone(memory_format=torch.contiguous_format)
    return named


def _small(t: torch.Tensor) -> np.ndarray:
    """Probabilities and counts as figures need them, in half the space."""
    return t.cpu().numpy().astype(np.float16 if t.is_floating_point() else np.uint32)


def record_of(plan: Plan, learner: Learner, story: dict[str, Any]) -> Record:
    """The record of a learner that has learned its stream."""
    matrices, scores, arrays = {}, {}, {"loss": np.array(learner.curve)}
    untrained = learner.untrained
    assert untrained is not None
    settings = plan.stream.evaluation_settings
    for view, rows in learner.scores.items():
        r = {s: np.stack([getattr(row, s) for row in rows]) for s in settings}
        matrices[view] = {s: m.round(6).tolist() for s, m in r.items()}
        scores[view] = {s: summary(m, getattr(untrained, s), plan.stream.kind) for s, m in r.items()}
        last = rows[-1]
        arrays[f"class_accuracy/{view}"] = np.stack([row.class_accuracy for row in rows])
        arrays[f"class_probability/{view}"] = last.class_probability
        arrays[f"task_probability/{view}"] = np.array(  # of predicting any class of the task
            [last.class_probability[list(task.classes)].sum() for task in plan.stream.tasks]
        )
        arrays[f"reliability/{view}"] = last.reliability
        if "/" not in view:
            arrays |= {f"activity/{view}/{l + 1}": a for l, a in enumerate(last.activity)}
    arrays |= {name: _small(t) for name, t in learner.method.arrays(learner.memories).items()}
    done, _ = learner.steps
    return Record(
        name=plan.name,
        experiment=plan.facts
        | ({"given": {name: plan.settings[name] for name in plan.experiment.settings}} if plan.fitted else {}),
        settings=plan.settings,
        stream={
            "name": plan.stream.name,
            "kind": plan.stream.kind,
            "data": plan.stream.data.name,
            "image_shape": list(plan.stream.data.image_shape),
            "dtype": str(plan.stream.data.train_images.dtype).removeprefix("torch."),
            "range": [float(v) for v in plan.stream.data.train_images.aminmax()],
            "fingerprint": plan.stream.fingerprint,
            "classes": list(plan.stream.data.class_names),
            "tasks": [list(task.classes) for task in plan.stream.tasks],
            "images": [len(task.train) for task in plan.stream.tasks],
        },
        inference=plan.method.inference,
        matrices=matrices,
        untrained={s: getattr(untrained, s).tolist() for s in settings},
        scores=scores,
        code={**provenance.code_identity(), "earlier": story["sources"][:-1]},
        versions=provenance.versions(),
        device={**device_facts(learner.device), "precision": learner.precision},
        times={
            "started": story["started"],
            "finished": provenance.now(),
            "seconds": round(story["seconds"], 2),
            "steps": done,
            "together": story["together"],  # runs side by side in its last sitting
        },
        arrays=arrays,
    )
