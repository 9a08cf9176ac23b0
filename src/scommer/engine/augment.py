"""Crop, flip and normalise a whole batch: one gather, no loop."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from scommer.gpu.compiling import compiled


class Augment:
    """Random crop after padding with `pad` zero pixels, random horizontal flip, then (x - mean) / std."""

    def __init__(
        self,
        pad: int,
        flip: bool,
        mean: Sequence[float],  # one per channel or one for all, of pixels in 0 … 1
        std: Sequence[float],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        channels: int | None = None,  # a single one may be a row of features, with a value for each
    ) -> None:
        self.pad, self.flip, self.dtype = pad, flip, dtype
        self.mean, self.std = (_for_images(values, channels).to(device) for values in (mean, std))

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment and normalise raw images [B, C, H, W]."""
        u = None
        if self.pad or self.flip:
            u = torch.rand(3, len(images), generator=generator, device=images.device)
        return _augment(images, u, self.pad, self.flip, self.mean, self.std, self.dtype)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise raw images without augmenting them, as for testing."""
        return _normalise(images, self.mean, self.std, self.dtype)


def _for_images(values: Sequence[float], channels: int | None) -> Tensor:
    """Return values that broadcast over images: one for each channel, or for each feature of a row."""
    t = torch.tensor(values)
    return t if channels == 1 and len(t) > 1 else t[:, None, None]


@compiled
def _augment(
    images: Tensor, u: Tensor | None, pad: int, flip: bool, mean: Tensor, std: Tensor, dtype: torch.dtype
) -> Tensor:
    return _normalise(images if u is None else _crop_and_flip(images, u, pad, flip), mean, std, dtype)


def _normalise(images: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    return ((x - mean) / std).to(dtype)


def _crop_and_flip(images: Tensor, u: Tensor, pad: int, flip: bool) -> Tensor:
    """Return random crops of the padded images, some flipped, from uniform draws [3, B]."""
    b, _, h, w = images.shape
    device = images.device
    offset = (u[:2] * (2 * pad + 1)).long()[:, :, None]
    rows = offset[0] + torch.arange(h, device=device)  # [B, H]
    cols = torch.arange(w, device=device).expand(b, w)
    if flip:
        cols = torch.where(u[2, :, None] < 0.5, w - 1 - cols, cols)
    cols = offset[1] + cols
    padded = F.pad(images, (pad,) * 4)
    sample = torch.arange(b, device=device)[:, None, None]
    return padded[sample, :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
