"""What a step must cost at the least: its networks alone, and their convolutions alone."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.engine.learner import Learner
from scommer.gpu.side_stream import record_event


def _passes(learner: Learner) -> tuple[int, int]:
    """Images that a step trains on, and images that other memories answer for."""
    t, method = learner.training, learner.method
    return t.batch + method.draws * method.passes * t.replay, t.replay * len(learner.memories.long_term)


def networks_alone(learner: Learner) -> Callable[[], None]:
    """Forward and backward of working memory and forward of the others, on as many images as a step."""
    trained, answered = _passes(learner)
    x = _images(learner, max(trained, answered))
    working, memories = learner.memories.working, list(learner.memories.long_term.values())

    def work() -> None:
        ready = record_event(learner.device)  # as in a step, memories answer beside each other
        working.sink.reset()
        logits = working(x[:trained]).logits
        for memory in memories:
            memory.retrieve(x[: answered // len(memories)], ready)
        torch.autograd.grad(logits.sum(), working.parameters, allow_unused=True)
        working.sink.side.join()

    return work


def convolutions(learner: Learner) -> Callable[[], None]:
    """The convolutions of a step and nothing else, as PyTorch's library does them."""
    trained, answered = _passes(learner)
    layers = [
        (conv, x[:1].expand(trained, -1, -1, -1).contiguous(memory_format=torch.channels_last).requires_grad_(i > 0))
        for i, (conv, x) in enumerate(_inputs(learner))
    ]

    def work() -> None:
        for conv, x in layers:
            y = F.conv2d(x, conv.weight, None, conv.stride, conv.padding)
            wanted = (x, conv.weight) if x.requires_grad else (conv.weight,)
            torch.autograd.grad(y, wanted, y.detach())
            with torch.no_grad():
                if answered:
                    F.conv2d(x[:answered], conv.weight, None, conv.stride, conv.padding)

    return work


def _images(learner: Learner, n: int) -> Tensor:
    x = torch.randn(n, *learner.stream.data.image_shape, device=learner.device)
    return x.to(learner.augment.dtype, memory_format=torch.channels_last)


def _inputs(learner: Learner) -> list[tuple[nn.Conv2d, Tensor]]:
    """Each convolution of working memory with an input of its shape; the images come first."""
    seen: list[tuple[nn.Conv2d, Tensor]] = []
    network = learner.memories.working.network
    hooks = [
        m.register_forward_hook(lambda module, args, _: seen.append((module, args[0].detach())))
        for m in network.modules()
        if isinstance(m, nn.Conv2d)
    ]
    network(_images(learner, 2))
    for hook in hooks:
        hook.remove()
    return seen
