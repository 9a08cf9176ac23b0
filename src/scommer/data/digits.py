"""scikit-learn's handwritten digits, 8 × 8 pixels: real data without a download."""

import numpy as np

from scommer.data.dataset import Dataset, from_arrays


def load_digits() -> Dataset:
    """Return 1,797 grey images of ten digits, with a fixed fifth of every class held out for testing."""
    from sklearn import datasets  # slow to import, and needed only here

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # 17 levels of grey, spread over the full range
    return from_arrays(images, digits.target, name="digits")
