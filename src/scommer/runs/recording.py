"""Make the record and the weights of a learner that has finished its stream."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from scommer import provenance
from scommer.device import device_facts
from scommer.engine.calibration import Calibration
from scommer.engine.evaluate import summary
from scommer.engine.learner import Learner
from scommer.runs.experiment import Plan
from scommer.runs.facts import CodeFacts, DeviceFacts, ExperimentFacts, StreamFacts, Times
from scommer.runs.record import Record
from scommer.streams import Stream


def final_weights(learner: Learner) -> dict[str, torch.Tensor]:
    """Return the parameters of each memory and its statistics for inference, by name."""
    named = {}
    for view in learner.method.views(learner.memories, list(Calibration(learner))):
        if "/" not in view.name:
            with view.memory.weights.using_statistics(view.statistics):
                for name, t in view.memory.weights.named(view.memory.network).items():
                    named[f"{view.name}.{name}"] = t.cpu().clone(memory_format=torch.contiguous_format)
    return named


def record_of(plan: Plan, learner: Learner, history: Mapping[str, Any]) -> Record:
    """Return the record of a learner that has learned its stream.

    `history` holds when the run `started`, its `seconds`, the hashes of its `sources` and how many ran `together`.
    """
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
    arrays |= {name: _compact(t) for name, t in learner.method.arrays(learner.memories).items()}
    done, _ = learner.steps
    given = {name: plan.settings[name] for name in plan.experiment.settings} if plan.fitted else None
    return Record(
        name=plan.name,
        experiment=ExperimentFacts(**plan.facts, given=given),
        settings=plan.settings,
        stream=_stream_facts(plan.stream),
        inference=plan.method.inference,
        matrices=matrices,
        untrained={s: getattr(untrained, s).tolist() for s in settings},
        scores=scores,
        code=CodeFacts(**provenance.code_identity(), earlier=history["sources"][:-1]),
        versions=provenance.versions(),
        device=DeviceFacts(**device_facts(learner.device), precision=learner.precision),
        times=Times(
            started=history["started"],
            finished=provenance.now(),
            seconds=round(history["seconds"], 2),
            steps=done,
            together=history["together"],  # when the run finished
        ),
        arrays=arrays,
    )


def _stream_facts(stream: Stream) -> StreamFacts:
    data = stream.data
    return StreamFacts(
        name=stream.name,
        kind=stream.kind,
        data=data.name,
        image_shape=list(data.image_shape),
        dtype=str(data.train_images.dtype).removeprefix("torch."),
        range=[float(v) for v in data.train_images.aminmax()],
        fingerprint=stream.fingerprint,
        classes=list(data.class_names),
        tasks=[list(task.classes) for task in stream.tasks],
        images=[len(task.train) for task in stream.tasks],
    )


def _compact(t: torch.Tensor) -> np.ndarray:
    """Return probabilities and counts with the precision that figures need, in half the space."""
    return t.cpu().numpy().astype(np.float16 if t.is_floating_point() else np.uint32)
