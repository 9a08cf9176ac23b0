"""CIFAR-10 images as rows of features, computed from pixels alone: a stand-in for a frozen network.

    python examples/cifar_features.py features.npz --train 1000 --test 200

After Coates and Ng (2011): whitened random patches as filters, a threshold, means over the four quarters of the image,
then the principal components of all of it. No labels are used. Needs CIFAR-10 (`scommer data get cifar10`).
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, conv2d

from scommer.data import Dataset, load

PATCH, FILTERS, THRESHOLD, FEATURES = 6, 400, 0.5, 256


def cifar_features(data: Dataset, train: int, test: int) -> dict[str, NDArray[np.generic]]:
    """Return features and labels of this many images of each class, for training and for testing."""
    chosen, held_out = _first_of_each(data.train_labels, train), _first_of_each(data.test_labels, test)
    filters = _whitened_patches(data.train_images[chosen])
    pooled = _responses(data.train_images[chosen], *filters)
    centre = pooled.mean(0)
    _, _, components = torch.svd_lowrank(pooled - centre, FEATURES + 16, niter=4)
    project = components[:, :FEATURES]
    return {
        "train": ((pooled - centre) @ project).numpy(),
        "train_labels": data.train_labels[chosen].numpy(),
        "test": ((_responses(data.test_images[held_out], *filters) - centre) @ project).numpy(),
        "test_labels": data.test_labels[held_out].numpy(),
    }


def _first_of_each(labels: Tensor, n: int) -> Tensor:
    return torch.cat([(labels == c).nonzero().flatten()[:n] for c in labels.unique()]).sort().values


def _whitened_patches(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return filters [F, 3, P, P] and biases [F] that whiten a patch and compare it with random ones."""
    draw = torch.Generator().manual_seed(0)
    which = torch.randint(len(images), (20_000,), generator=draw)
    row, column = torch.randint(33 - PATCH, (2, 20_000), generator=draw)
    span = torch.arange(PATCH)
    rows, columns = row[:, None, None] + span[:, None], column[:, None, None] + span
    patches = images.permute(0, 2, 3, 1)[which[:, None, None], rows, columns].permute(0, 3, 1, 2)
    patches = patches.flatten(1).float() / 255
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh((patches - mean).T.cov())
    whiten = vectors @ torch.diag((values + 0.01).rsqrt()) @ vectors.T
    words = (patches[:FILTERS] - mean) @ whiten
    words = words / words.norm(dim=1, keepdim=True)
    filters = words @ whiten
    return filters.reshape(FILTERS, 3, PATCH, PATCH), -filters @ mean


def _responses(images: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    """Return the mean response of each filter and of its negative in each quarter of the image."""
    found = []
    for part in images.split(250):
        z = conv2d(part.float() / 255, filters, bias)
        both = torch.cat([(z - THRESHOLD).relu(), (-z - THRESHOLD).relu()], 1)
        found.append(adaptive_avg_pool2d(both, 2).flatten(1))
    return torch.cat(found).sqrt()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--train", type=int, default=1000, help="images of each class to train on")
    parser.add_argument("--test", type=int, default=200, help="images of each class to test on")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    given = parser.parse_args()
    made: dict[str, Any] = cifar_features(load("cifar10", given.data), given.train, given.test)
    np.savez_compressed(given.output, **made)
