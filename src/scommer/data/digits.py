"""Handwritten digits of 8x8 pixels that come with scikit-learn: real data without a download."""

import numpy as np

from scommer.data.dataset import Dataset, from_arrays


def load_digits() -> Dataset:
    """1,797 grey images of ten digits, of which a fixed fifth of every class is held out."""
    from sklearn import datasets  # slow to import, and needed for this data set alone

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # the 17 ink levels, over the full range
    return from_arrays(images, digits.target, name="digits")
