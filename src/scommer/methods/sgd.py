"""SGD: the lower bound. No replay, no memory beside the weights."""

from dataclasses import dataclass

from torch.nn.functional import cross_entropy

from scommer.methods.base import Batch, Method, Mind, Outcome, Workshop


@dataclass(frozen=True)
class SGD(Method):
    """Plain training on one task after the other."""

    def mind(self, make: Workshop) -> Mind:
        return Mind(make.working())

    def loss(self, mind: Mind, task: Batch, recalled: tuple[Batch, ...]) -> Outcome:
        z, fired = mind.working(task.x)
        return Outcome(cross_entropy(z, task.y), z, fired)
