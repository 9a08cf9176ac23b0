"""The minimum cost of a step: the passes of its networks alone, and their convolutions alone."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.engine.learner import Learner
from scommer.gpu.side_stream import record_event


def _images_per_step(learner: Learner) -> tuple[int, int]:
    """Return how many images go through working memory, and how many through all long-term memories."""
    t, method = learner.training, learner.method
    return t.batch + method.draws * method.passes * t.replay, method.retrieved(t, len(learner.memories.long_term))


def networks_alone(learner: Learner) -> Callable[[], None]:
    """Return a function that runs working memory forward and backward, and long-term memories forward.

    It processes as many images as a step.
    """
    trained, retrieved = _images_per_step(learner)
    x = _images(learner, max(trained, retrieved))
    working, memories = learner.memories.working, list(learner.memories.long_term.values())

    def work() -> None:
        ready = record_event(learner.device)  # long-term memories overlap with working memory, as in a step
        working.sink.reset()
        logits = working(x[:trained]).logits
        for memory in memories:
            memory.retrieve(x[: retrieved // len(memories)], ready)
        torch.autograd.grad(logits.sum(), working.parameters, allow_unused=True)
        working.sink.side.join()

    return work


def convolutions(learner: Learner) -> Callable[[], None]:
    """Return a function that runs the convolutions of a step and nothing else, with PyTorch's own functions."""
    trained, retrieved = _images_per_step(learner)
    layers = [
        (conv, x[:1].expand(trained, -1, -1, -1).contiguous(memory_format=torch.channels_last).requires_grad_(i > 0))
        for i, (conv, x) in enumerate(_conv_inputs(learner))
    ]

    def work() -> None:
        for conv, x in layers:
            y = F.conv2d(x, conv.weight, None, conv.stride, conv.padding)
            leaves = (x, conv.weight) if x.requires_grad else (conv.weight,)
            torch.autograd.grad(y, leaves, y.detach())
            with torch.no_grad():
                if retrieved:
                    F.conv2d(x[:retrieved], conv.weight, None, conv.stride, conv.padding)

    return work


def _images(learner: Learner, n: int) -> Tensor:
    x = torch.randn(n, *learner.stream.data.image_shape, device=learner.device)
    return x.to(learner.augment.dtype, memory_format=torch.channels_last)


def _conv_inputs(learner: Learner) -> list[tuple[nn.Conv2d, Tensor]]:
    """Return each convolution of working memory with an input, in the order of the forward pass."""
    inputs: list[tuple[nn.Conv2d, Tensor]] = []
    network = learner.memories.working.network
    hooks = [
        m.register_forward_hook(lambda module, args, _: inputs.append((module, args[0].detach())))
        for m in network.modules()
        if isinstance(m, nn.Conv2d)
    ]
    network(_images(learner, 2))
    for hook in hooks:
        hook.remove()
    return inputs
