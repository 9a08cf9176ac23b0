"""The state of a learner: everything needed to resume training bit for bit, as tensors and a few plain values."""

from operator import index
from typing import Any

import torch
from torch import Tensor

from scommer.engine.evaluate import Scores
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
    return tensors, {**{name: getattr(learner, name) for name in POSITION}, "scores": counts}


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
    inside = 0 <= task < tasks and 0 <= epoch <= learner.training.epochs
    if (not finished and not (inside and 0 <= batch <= learner.steps_per_epoch(task))) or offered < 0:
        raise ValueError(f"there is no task {task}, epoch {epoch}, batch {batch}")
    if batch and not torch.equal(tensors["order"].cpu().sort().values, learner.phases[task].sort().values):
        raise ValueError("its order is not of this task's images")
