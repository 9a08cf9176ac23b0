"""The state of a learner: everything needed to resume training bit for bit, as tensors and a few plain values."""

from math import isfinite
from operator import index
from typing import Any

import torch
from torch import Tensor

from scommer.engine.evaluate import BINS, Scores
from scommer.engine.learner import Learner

POSITION = ("task", "epoch", "batch", "offered", "curve")  # attributes of a learner that are plain values


def state_of(learner: Learner) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state of a learner."""
    learner.own_stream.join()
    tensors = _training_tensors(learner) | {"order": learner.order, "loss": learner.loss}
    rows = {"untrained": [learner.untrained] if learner.untrained else [], **learner.scores}
    for view, scores in rows.items():
        for t, row in enumerate(scores):
            tensors |= {f"scores/{view}/{t}/{k}": torch.from_numpy(a) for k, a in row.arrays().items()}
    counts = {view: len(scores) for view, scores in rows.items()}
    position = {name: getattr(learner, name) for name in POSITION}
    return tensors, {**position, "ended": learner.ended, "scores": counts}


def restore(learner: Learner, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Put a learner of the same experiment into a state. ValueError or KeyError if the state does not fit."""
    _check_fits(learner, tensors, values)
    learner.own_stream.join()
    for name, live in learner.memories.tensors().items():
        live.copy_(tensors[f"memories/{name}"])
    learner.memories.sync_half()
    for name, generator in learner.generators().items():
        generator.set_state(tensors[f"generator/{name}"])
    learner.order = tensors["order"].to(learner.device)
    learner.loss.copy_(tensors["loss"])
    for name in POSITION:
        setattr(learner, name, values[name])
    learner.ended = values.get("ended", False)  # early ones do not say: they were not saved during evaluation
    rows: dict[str, list[Scores]] = {}
    for view, count in values["scores"].items():
        rows[view] = []
        for t in range(count):
            prefix = f"scores/{view}/{t}/"
            arrays = {k.removeprefix(prefix): v.numpy() for k, v in tensors.items() if k.startswith(prefix)}
            rows[view].append(Scores.from_arrays(arrays))
    learner.untrained = next(iter(rows.pop("untrained")), None)
    learner.scores = rows


def _training_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return what every state has: the memories, and the generators."""
    memories = {f"memories/{name}": t for name, t in learner.memories.tensors().items()}
    return memories | {f"generator/{name}": g.get_state() for name, g in learner.generators().items()}


def _check_fits(learner: Learner, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Refuse a state whose tensors or position are not those of such a learner, before anything is changed."""
    own = _training_tensors(learner)
    found = {name for name in tensors if name.startswith(("memories/", "generator/"))}
    if wrong := sorted(own.keys() ^ found):
        raise ValueError(f"{wrong[0]} is {'missing' if wrong[0] in own else 'unknown'}")
    for name, t in own.items():
        if tensors[name].shape != t.shape or tensors[name].dtype != t.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype} {tuple(tensors[name].shape)}")
    task, epoch, batch, offered = (index(values[name]) for name in ("task", "epoch", "batch", "offered"))
    tasks = len(learner.phases)
    finished = task == tasks and epoch == batch == 0
    inside = 0 <= task < tasks and 0 <= epoch <= learner.epochs_of(task)
    if (not finished and not (inside and 0 <= batch <= learner.steps_per_epoch(task))) or offered < 0:
        raise ValueError(f"there is no task {task}, epoch {epoch}, batch {batch}")
    ended = values.get("ended", False)
    if not isinstance(ended, bool) or (ended and (finished or epoch < learner.epochs_of(task))):
        raise ValueError(f"task {task} does not end in epoch {epoch}")
    order = tensors["order"].cpu()
    if batch and (order.dtype != torch.int64 or not order.sort().values.equal(learner.phases[task].sort().values)):
        raise ValueError("its order is not of this task's images")
    if (tensors["loss"].dtype, tensors["loss"].shape) != (learner.loss.dtype, learner.loss.shape):
        raise ValueError(f"loss is {tensors['loss'].dtype} {tuple(tensors['loss'].shape)}")
    _check_examples(learner, tensors, offered)
    curve = values["curve"]
    known = isinstance(curve, list) and len(curve) == sum(map(learner.epochs_of, range(task))) + epoch
    if not known or not all(map(isfinite, curve)):
        raise ValueError("its losses are not those of the epochs so far")
    _check_scores(learner, tensors, dict(values["scores"]), task, begun=bool(task or epoch or batch))


def _check_examples(learner: Learner, tensors: dict[str, Tensor], offered: int) -> None:
    """Refuse an episodic memory that does not match the examples offered."""
    if learner.memories.episodic is None:
        return
    labels = tensors["memories/episodic/y"]
    if not bool(((labels >= 0) & (labels < learner.stream.data.num_classes)).all()):
        raise ValueError("memories/episodic/y has labels of no class")
    if int(tensors["memories/episodic/seen"]) != offered:
        raise ValueError(f"memories/episodic/seen is not {offered}")


def _check_scores(learner: Learner, tensors: dict[str, Tensor], counts: dict[str, int], task: int, begun: bool) -> None:
    """Refuse scores other than one row for each memory and task so far, and one before the first task."""
    scored, views = len(learner.test_images) > 0, learner.views([])
    untrained = counts.pop("untrained")
    if untrained not in (0, int(scored)) or (begun and untrained != int(scored)):
        raise ValueError("its scores before training are missing")
    if counts != ({view.name: task for view in views} if scored and task else {}):
        raise ValueError(f"its scores are not those of {task} tasks")
    tasks, classes = len(learner.stream.tasks), learner.stream.data.num_classes
    shapes = {
        "class_il": (tasks,), "task_il": (tasks,), "class_accuracy": (classes,), "class_probability": (classes,),
        "reliability": (BINS, 3),
    }  # fmt: skip
    rows = {f"scores/untrained/{t}": shapes for t in range(untrained)}
    for view in views if counts else []:
        rows |= {f"scores/{view.name}/{t}": shapes for t in range(task)}
        activity = {f"activity.{l + 1}": (classes, n) for l, n in enumerate(view.memory.units)}
        rows[f"scores/{view.name}/{task - 1}"] = shapes | activity  # only of the last one
    for prefix, expected in rows.items():
        for name, shape in expected.items():
            t = tensors[f"{prefix}/{name}"]
            dtype = torch.int32 if name.startswith("activity") else torch.float64
            if t.dtype != dtype or t.shape != shape:
                raise ValueError(f"{prefix}/{name} is {t.dtype} {tuple(t.shape)}")
            known = t[~t.isnan()] if name == "class_accuracy" else t  # NaN is a class without test images
            if not bool(((known >= 0) & known.isfinite()).all()) or (name.endswith("_il") and known.max() > 100):
                raise ValueError(f"{prefix}/{name} does not hold scores")
