"""What the variant `plus` adds to SCoMMER's loss: pure functions of tensors."""

import torch
from torch import Tensor

FLOOR = 1e-4  # the least share, so that classes never seen are pushed down a little too
LONG = 1400  # steps of a task from which τ counts in full: shorter ones do not memorise recalled images


def strength(balance: float, task_steps: Tensor) -> Tensor:
    """Return the strength of the correction in a task of T steps: min(τ, max(1, τ T / 1400))."""
    return (balance * task_steps / LONG).clamp(min=1).clamp(max=balance)


def class_shares(remembered: Tensor, held: Tensor, current: Tensor, y: Tensor, replay: bool) -> Tensor:
    """Return π [C], each class's share of a step's training images: half recalled images, half images of the task.

    `remembered` are the labels of episodic memory, of which the first `held` are filled. `current` counts the labels of
    this task so far, without this batch, `y`. Before there is anything to replay, only the task counts.
    """
    classes = torch.arange(len(current), device=y.device)
    task = current + (y[:, None] == classes).sum(0)
    shares = task / task.sum()
    if replay:
        filled = torch.arange(len(remembered), device=y.device) < held
        recalled = ((remembered[:, None] == classes) & filled[:, None]).sum(0)
        shares = (shares + recalled / recalled.sum()) / 2
    return shares.clamp(min=FLOOR)


def distance(z: Tensor, target: Tensor, classes: Tensor) -> Tensor:
    """Return the mean squared difference of the logits of some classes; 0 if there are none."""
    return ((z - target).square() * classes).sum() / (len(z) * classes.sum()).clamp(min=1)
