"""A head that, in training, has further outputs for turned images: each turn of a class is a class of its own."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scommer.nn.layers import Linear

TURNS = 4  # by 0, 90, 180 and 270 degrees


class TurnedHead(Linear):
    """In training, returns the logits of all classes upright, then of all turned once, twice and three times.

    At inference it is the linear layer of the upright ones.
    """

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.turned = Turned(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        upright: Tensor = super().forward(x)
        return torch.cat([upright, self.turned(x)], 1) if self.training else upright


class Turned(nn.Module):
    """The linear layer of the turned classes. Its weights have an axis of classes, so that more can be added."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(TURNS - 1, classes, features))
        self.bias = nn.Parameter(torch.empty(TURNS - 1, classes))

    def reset_parameters(self) -> None:
        """Initialise all weights as those of the upright classes."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.flatten(0, 1), self.bias.flatten())
