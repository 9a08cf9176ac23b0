"""The digits are those of scikit-learn, each once."""

from collections import Counter

import numpy as np
import torch
from sklearn import datasets

from scommer.data import load


def test_digits_are_those_of_scikit_learn():
    data, source = load("digits"), datasets.load_digits()
    assert (data.name, data.image_shape) == ("digits", (1, 8, 8))
    assert data.class_names == tuple("0123456789")
    assert data.train_images.dtype == torch.uint8

    # The 17 levels become 17 evenly spaced bytes from 0 to 255.
    levels = np.unique(data.train_images.numpy())
    assert (levels[0], levels[-1], len(levels)) == (0, 255, 17)
    assert set(np.diff(levels)) == {15, 16}

    # Every image occurs once, with its label.
    images = torch.cat([data.train_images, data.test_images]).numpy().reshape(-1, 64) / 255 * 16
    labels = torch.cat([data.train_labels, data.test_labels]).tolist()
    found = Counter((tuple(np.rint(image)), label) for image, label in zip(images, labels, strict=True))
    expected = Counter((tuple(i), int(t)) for i, t in zip(source.data, source.target, strict=True))
    assert found == expected


def test_a_fixed_fifth_of_every_class_is_held_out():
    first, second = load("digits"), load("digits")
    assert torch.equal(first.test_images, second.test_images)
    assert torch.equal(first.train_labels, second.train_labels)
    held, kept = torch.bincount(first.test_labels), torch.bincount(first.train_labels)
    assert torch.allclose(held / (held + kept), torch.full((10,), 0.2), atol=0.01)
