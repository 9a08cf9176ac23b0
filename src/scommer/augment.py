"""Whole-batch crop, flip and normalise: one gather, no loop."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


class Augment:
    """Random crop out of `pad` zero pixels, random horizontal flip, then (x - mean) / std."""

    def __init__(
        self,
        pad: int,
        flip: bool,
        mean: Sequence[float],  # by channel or one for all, of pixels in 0 … 1
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        self.pad, self.flip = pad, flip
        self.mean = torch.tensor(mean, device=device)[:, None, None]
        self.std = torch.tensor(std, device=device)[:, None, None]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augments and normalises raw images [B, C, H, W]."""
        if self.pad or self.flip:
            images = self._shift(images, generator)
        return self.normalise(images)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalises raw images, unchanged otherwise: how test images are seen."""
        x = images.float() / 255 if images.dtype == torch.uint8 else images
        return (x - self.mean) / self.std

    def _shift(self, images: Tensor, generator: torch.Generator) -> Tensor:
        b, _, h, w = images.shape
        device = images.device
        offset = torch.randint(0, 2 * self.pad + 1, (2, b, 1), generator=generator, device=device)
        rows = offset[0] + torch.arange(h, device=device)  # [B, H]
        cols = torch.arange(w, device=device).expand(b, w)
        if self.flip:
            flipped = torch.rand(b, 1, generator=generator, device=device) < 0.5
            cols = torch.where(flipped, w - 1 - cols, cols)
        cols = offset[1] + cols
        padded = F.pad(images, (self.pad,) * 4)
        sample = torch.arange(b, device=device)[:, None, None]
        return padded[sample, :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
