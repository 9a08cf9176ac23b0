"""Real data: CIFAR-10 as 256 features of pixels (examples/cifar_features.py, steps of 1/25 deviation), and digits."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from scommer import LifelongClassifier

Array = NDArray[Any]
_found = np.load(Path(__file__).with_name("cifar_features.npz"))
X, XT = (_found[name] * _found["scale"] for name in ("train", "test"))
Y, YT = (_found[name].astype(int) for name in ("train_labels", "test_labels"))

_pixels, _digits = load_digits(return_X_y=True)
_pixels = (_pixels.reshape(-1, 8, 8) / 16).astype(np.float32)
_test = np.arange(len(_digits)) % 3 == 0
DX, DY, DXT, DYT = _pixels[~_test], _digits[~_test], _pixels[_test], _digits[_test]


class Late:
    """A classifier that has learned eight classes, before a ninth arrives with 100 examples."""

    def __init__(self, model: LifelongClassifier, images: bool = False, seed: int = 0) -> None:
        self.model = model
        x, y, self.xt, self.yt = (DX, DY, DXT, DYT) if images else (X, Y, XT, YT)
        rng = np.random.default_rng(seed)
        *self.old, self.new = rng.permutation(10)[:9].tolist()
        first, late = (rng.permutation(np.flatnonzero(np.isin(y, classes))) for classes in (self.old, self.new))
        self.late = x[late[:100]], y[late[:100]]
        model.partial_fit(x[first[:4000]], y[first[:4000]])
        self.before = self.accuracy(self.old)

    def accuracy(self, classes: Any) -> float:
        """In percent, on test examples of these classes."""
        which = np.isin(self.yt, classes)
        return 100 * self.model.score(self.xt[which], self.yt[which])

    def learn(self, portions: int = 1) -> tuple[float, float]:
        """Return the recall of the new class, and the points that the others lose."""
        for x, y in zip(*(np.array_split(a, portions) for a in self.late), strict=True):
            self.model.partial_fit(x, y)
        return self.accuracy(self.new), self.before - self.accuracy(self.old)
