"""Rehearse the first steps of a learner on a GPU, to compile its kernels side by side."""

from typing import TYPE_CHECKING

from scommer.engine.evaluate import run_once
from scommer.gpu.ahead import can_compile_ahead, compiling_ahead
from scommer.gpu.compiling import compiling

if TYPE_CHECKING:
    from scommer.engine.learner import Learner

_rehearsed: set[str] = set()  # what learners of this process have compiled ahead


def compile_ahead(learner: "Learner") -> None:
    """Compile the kernels that a learner needs next, unless one like it has done so in this process."""
    finished = learner.task == len(learner.phases)
    if finished or not learner.method.descends or not can_compile_ahead(learner.device):
        return
    data, episodic = learner.stream.data, learner.memories.episodic
    sizes = (learner.batch_size, data.image_shape, data.num_classes, episodic.capacity if episodic else 0)
    facts = (learner.method, learner.training, learner.precision, learner.device, learner.captures, learner.offered > 0)
    key = repr((*facts, *sizes))
    if key not in _rehearsed:
        _rehearsed.add(key)
        with compiling_ahead():
            rehearse(learner)


def rehearse(learner: "Learner") -> None:
    """Take a step of each kind and a pass of an evaluation, and restore all that they change."""
    memories, method, episodic = learner.memories, learner.method, learner.memories.episodic
    live = {**memories.tensors(), "loss": learner.loss}
    tensors = {name: t.clone() for name, t in live.items()}
    states = {name: generator.get_state() for name, generator in learner.generators().items()}
    index = learner.phases[learner.task][: learner.batch_size].to(learner.device)
    replays = [0] if learner.offered == 0 or not method.draws else []
    if method.draws and episodic is not None:
        replays.append(min(learner.training.replay, episodic.capacity))
    for replay in replays:
        learner.step(index, replay, True)
    if len(learner.test_images):
        view, classes = method.views(memories, [])[0], learner.stream.data.num_classes
        run_once(view, learner.test_images, learner.test_labels, learner.augment, classes)
    if learner.captures:
        with compiling():  # torch.compile works in this thread, while others compile the kernels met so far
            learner.step(index, replays[-1], True)
    for name, t in live.items():
        t.copy_(tensors[name])
    for name, generator in learner.generators().items():
        generator.set_state(states[name])
    memories.sync_half()
