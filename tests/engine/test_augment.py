"""Augmentation against the set of all possible crops and flips."""

from collections import Counter

import numpy as np
import pytest
import torch

from scommer.engine.augment import Augment

C, H, W, PAD = 2, 6, 7, 4
MEAN, STD = (0.4, 0.6), (0.25, 0.5)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def raw(n, seed=0):
    """Return images whose pixels are all above 0, unlike padding."""
    return torch.from_numpy(np.random.default_rng(seed).integers(1, 256, (n, C, H, W), dtype=np.uint8))


def every_outcome(image, pad, flip):
    """Map the bytes of every crop and flip of the zero-padded image to (row, column, mirrored)."""
    padded = np.zeros((C, H + 2 * pad, W + 2 * pad), np.uint8)
    padded[:, pad : pad + H, pad : pad + W] = image
    found = {}
    for row in range(2 * pad + 1):
        for column in range(2 * pad + 1):
            crop = padded[:, row : row + H, column : column + W]
            found[crop.tobytes()] = (row, column, False)
            if flip:
                found[crop[:, :, ::-1].tobytes()] = (row, column, True)
    return found


def pixels(x):
    """Undo the normalisation."""
    mean, std = (np.array(v)[:, None, None] for v in (MEAN, STD))
    exact = (x.double().numpy() * std + mean) * 255
    assert np.abs(exact - exact.round()).max() < 1e-3
    return exact.round().astype(np.uint8)


def outcomes(pad, flip, n, seed=0):
    images = raw(3)
    table = [every_outcome(image.numpy(), pad, flip) for image in images]
    assert all(len(t) == (2 * pad + 1) ** 2 * (1 + flip) for t in table)  # all outcomes differ
    which = torch.arange(n) % 3
    out = Augment(pad, flip, MEAN, STD)(images[which], seeded(seed))
    assert out.shape == (n, C, H, W)
    return [table[i][image.tobytes()] for i, image in zip(which.tolist(), pixels(out), strict=True)]


def chi_square(counts, cells):
    expected = sum(counts.values()) / cells
    return sum((counts[c] - expected) ** 2 for c in counts) / expected + (cells - len(counts)) * expected


@pytest.mark.parametrize(("pad", "flip"), [(PAD, True), (PAD, False), (0, True), (1, True)])
def test_every_crop_and_flip_is_equally_likely(pad, flip):
    cells = (2 * pad + 1) ** 2 * (1 + flip)
    found = Counter(outcomes(pad, flip, 100 * cells))
    assert len(found) == cells
    assert chi_square(found, cells) < cells - 1 + 6 * np.sqrt(2 * (cells - 1))


def test_crops_of_a_batch_are_independent():
    crops = outcomes(PAD, True, 4000, seed=2)
    pairs = Counter((a[0], b[0]) for a, b in zip(crops[::2], crops[1::2], strict=True))  # of neighbours
    assert chi_square(pairs, 81) < 80 + 6 * np.sqrt(160)


def test_padding_has_the_value_of_a_black_pixel():
    out = Augment(2, False, MEAN, STD)(torch.full((200, C, H, W), 255, dtype=torch.uint8), seeded())
    for c in range(C):
        values = {round(v, 4) for v in out[:, c].unique().tolist()}
        assert values == {round((1 - MEAN[c]) / STD[c], 4), round((0 - MEAN[c]) / STD[c], 4)}


def test_bytes_and_floats_are_augmented_alike():
    augment, images = Augment(PAD, True, MEAN, STD), raw(50)
    torch.testing.assert_close(augment(images, seeded(3)), augment(images.float() / 255, seeded(3)))


@pytest.mark.parametrize("as_float", [False, True])
def test_without_pad_and_flip_images_are_only_normalised(as_float):
    augment, images, g = Augment(0, False, MEAN, STD), raw(5), seeded()
    given = images.float() / 255 if as_float else images
    before, kept = g.get_state(), given.clone()
    out = augment(given, g)
    expected = images.numpy() / 255
    for c in range(C):
        assert out[:, c].numpy() == pytest.approx((expected[:, c] - MEAN[c]) / STD[c], abs=1e-5)
    assert torch.equal(g.get_state(), before)  # no draws
    assert torch.equal(given, kept)


def test_test_images_are_only_normalised():
    augment, images = Augment(PAD, True, MEAN, STD), raw(5)
    assert torch.equal(augment.normalise(images), Augment(0, False, MEAN, STD)(images, seeded()))


def test_augmentation_depends_only_on_the_given_generator():
    augment, images, global_state = Augment(PAD, True, MEAN, STD), raw(40), torch.get_rng_state()
    first, again, other = (augment(images, seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), global_state)
    g = seeded(1)
    assert torch.equal(augment(images, g), first)
    assert not torch.equal(augment(images, g), first)  # the generator has advanced


def test_augmentation_leaves_its_input_unchanged():
    images = raw(20)
    kept = images.clone()
    Augment(PAD, True, MEAN, STD)(images, seeded())
    assert torch.equal(images, kept)
