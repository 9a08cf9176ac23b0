"""Images to measure batch-norm statistics on, for inference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scommer import randomness

if TYPE_CHECKING:
    from scommer.engine.learner import Learner


@dataclass(frozen=True)
class Calibration:
    """Augmented batches of all images in episodic memory and as many of the task just learned, the same every time.

    A task with fewer images than memory holds is the smaller part: the statistics of a few images alone are poor.
    """

    learner: "Learner"
    check: Callable[[], None] = lambda: None  # called before each batch; may raise an error to abandon an evaluation

    def __iter__(self) -> Iterator[Tensor]:
        learner, episodic = self.learner, self.learner.memories.episodic
        held = episodic.held(learner.offered) if episodic else 0
        if episodic is None or not held:
            return
        task = min(learner.task, len(learner.phases) - 1)
        phase, name = learner.phases[task], f"calibration/{learner.earlier + task}"
        draw = randomness.generator(learner.seed, name)
        recalled = episodic.fields["x"][torch.randperm(held, generator=draw).to(learner.device)]
        fresh = learner.images[phase[torch.randperm(len(phase), generator=draw)[:held]].to(learner.device)]
        augmenting = randomness.generator(learner.seed, f"{name}/augment", learner.device)
        chunks = min(-(-held // learner.training.replay), max(1, held // 2))  # batch norm needs two images
        for a, b in zip(recalled.tensor_split(chunks), fresh.tensor_split(chunks), strict=True):
            self.check()
            yield learner.augment(torch.cat([a, b]), augmenting)
