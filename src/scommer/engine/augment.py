"""Crop, flip, normalise and vary a whole batch: one gather, no loop."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from scommer.gpu.compiling import compiled


class Augment:
    """Random crop after padding with `pad` zero pixels, random horizontal flip, then (x - mean) / std.

    Then, if asked for, `jitter` changes contrast and saturation by at most this fraction, and brightness by at most
    this multiple of std; `cutout` blanks a square with sides of this length at a random place, possibly partly outside.
    """

    def __init__(
        self,
        pad: int,
        flip: bool,
        mean: Sequence[float],  # one per channel or one for all, of pixels in 0 … 1
        std: Sequence[float],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        channels: int | None = None,  # a single one may be a row of features, with a value for each
        *,
        jitter: float = 0.0,
        cutout: int = 0,
    ) -> None:
        self.pad, self.flip, self.dtype = pad, flip, dtype
        self.jitter, self.cutout = jitter, cutout
        self.mean, self.std = (_for_images(values, channels).to(device) for values in (mean, std))

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment and normalise raw images [B, C, H, W]."""
        counts = [3 * bool(self.pad or self.flip), 3 * bool(self.jitter), 2 * bool(self.cutout)]
        u = torch.empty(sum(counts), len(images), device=images.device)
        u = u.uniform_(generator=generator) if any(counts) else u
        sizes = (self.pad, self.flip, self.jitter, self.cutout)
        return _augment(images, u.split(counts), sizes, self.mean, self.std, self.dtype)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise raw images without augmenting them, as for testing."""
        return _normalise(images, self.mean, self.std, self.dtype)


def _for_images(values: Sequence[float], channels: int | None) -> Tensor:
    """Return values that broadcast over images: one for each channel, or for each feature of a row."""
    t = torch.tensor(values)
    return t if channels == 1 and len(t) > 1 else t[:, None, None]


@compiled
def _augment(
    images: Tensor,
    u: Sequence[Tensor],  # uniform draws for each change, none where there is no such change
    sizes: tuple[int, bool, float, int],
    mean: Tensor,
    std: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    (crop, colour, square), (pad, flip, jitter, cutout) = u, sizes
    x = _normalise(_crop_and_flip(images, crop, pad, flip) if len(crop) else images, mean, std, torch.float32)
    x = _jitter(x, colour, jitter) if len(colour) else x
    x = _cut_out(x, square, cutout) if len(square) else x
    return x.to(dtype)


def _normalise(images: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    return ((x - mean) / std).to(dtype)


def _jitter(x: Tensor, u: Tensor, strength: float) -> Tensor:
    """Change the contrast, brightness and saturation of normalised images, from uniform draws [3, B]."""
    contrast, brightness, saturation = (strength * (2 * u - 1))[:, :, None, None, None]
    mean = x.mean((1, 2, 3), keepdim=True)
    x = (1 + contrast) * (x - mean) + mean + brightness
    grey = x.mean(1, keepdim=True)
    made: Tensor = (1 + saturation) * (x - grey) + grey
    return made


def _cut_out(x: Tensor, u: Tensor, size: int) -> Tensor:
    """Set a square of each image to 0; its centre is anywhere in the image, from uniform draws [2, B]."""
    inside = []
    for draws, side in zip(u, x.shape[2:], strict=True):
        pixels = torch.arange(side, device=x.device) + 0.5
        inside.append((pixels - draws[:, None] * side).abs() < size / 2)  # [B, side]
    rows, columns = inside
    return x.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


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
