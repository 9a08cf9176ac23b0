"""Turned images as classes of their own: a task of two classes has eight, and takes more to tell them apart."""

from collections.abc import Mapping

import torch
from torch import Tensor

from scommer.errors import UsageError
from scommer.gpu.compiling import compiled
from scommer.nn.turned_head import TURNS


class Turning:
    """Turns a share ρ of images by 90°, 180° or 270°, and numbers the classes of each turn after those before."""

    def __init__(self, share: float, image: Tensor, classes: int, generator: torch.Generator) -> None:
        height, width = image.shape[1:]
        if height != width:
            raise UsageError(f"images of {height} × {width} pixels cannot be turned, only square ones: set turned=0")
        self.share, self.classes, self.generator = share, classes, generator

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images, some of them turned, and their labels."""
        u = torch.rand(2, len(y), generator=self.generator, device=y.device)
        x, turn = _turned(x, u, self.share)
        # As augmentation leaves them, and as convolutions are fastest.
        return x.contiguous(memory_format=torch.channels_last), y + self.classes * turn

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the live state: there is none but the generator's."""
        return {}


def over_turns(values: Tensor) -> Tensor:
    """Return a value of each class for each turn of it."""
    return values.repeat(TURNS)


@compiled
def _turned(x: Tensor, u: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Turn each image whose first uniform draw [2, B] is below the share, as often as the second says."""
    turn = torch.where(u[0] < share, 1 + (u[1] * (TURNS - 1)).long(), 0)
    made = x
    for k in range(1, TURNS):
        made = torch.where((turn == k)[:, None, None, None], x.rot90(k, (2, 3)), made)
    return made, turn
