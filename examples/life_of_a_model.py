"""The life of a model: months of image folders, a new class, a forgotten one, export, prediction.

    pip install 'scommer[onnx]' onnxruntime
    python examples/life_of_a_model.py        # about half a minute on one core

Scans of digits arrive month by month, a folder for each class. No month sees the images of another: what the model
keeps of the past is in its file. The same life on the command line is `scommer learn`, `predict`, `forget` and
`export`.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image
from sklearn.datasets import load_digits

from scommer import LifelongClassifier, from_folder, read_images

MONTHS = {  # which digits are scanned, and how many of each
    "january": ([0, 1, 2, 3, 4, 5], 100),
    "february": ([0, 2, 4], 20),
    "march": ([5, 6], 40),  # 6 is new
    "april": ([7, 8], 40),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        live(Path(folder))


def live(folder: Path) -> LifelongClassifier:
    """Teach a model every month, and return it."""
    write_scans(folder)
    path = folder / "model.safetensors"
    tests = from_folder(folder / "tests", test_fraction=0)
    images, names = tests.train_images.numpy(), np.array(tests.class_names)[tests.train_labels]

    for month in MONTHS:
        model = LifelongClassifier.load(path) if path.exists() else LifelongClassifier(buffer=100)
        arrived = from_folder(folder / month, test_fraction=0)
        labels = np.array(arrived.class_names)[arrived.train_labels]
        model.partial_fit(arrived.train_images.numpy(), labels, layout="NCHW")
        model.save(path)  # completely or not at all
        known = np.isin(names, model.classes_)
        score = model.score(images[known], names[known], layout="NCHW")
        print(f"{month}: {len(labels):3} scans, {len(model.classes_)} classes, {100 * score:.1f} % right")

    # Someone asks for their fives to be deleted.
    model.forget(classes=["five"])
    model.save(path)
    remembered = np.sum(model.remembered_[1] == "five")
    predicted = np.sum(model.predict(images, layout="NCHW") == "five")
    print(f"forgotten: {remembered} fives are remembered, {predicted} are predicted")

    # Production needs neither PyTorch nor this package.
    model.export(folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    scan = next((folder / "tests" / "seven").iterdir())
    pixels = read_images([scan])  # [1, H, W, C]
    (p,) = session.run(None, {"images": pixels.transpose(0, 3, 1, 2)})
    print(f"a scan of a seven: {model.classes_[p.argmax()]}, with probability {p.max():.2f}")
    return model


def write_scans(folder: Path) -> None:
    """Write scikit-learn's digits as image files, some of them for testing."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    pixels, labels = load_digits(return_X_y=True)
    scans = (pixels.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    waiting = {digit: iter(scans[labels == digit]) for digit in range(10)}
    for month, (digits, each) in ({"tests": (range(9), 30)} | MONTHS).items():
        for digit in digits:
            place = folder / month / names[digit]
            place.mkdir(parents=True)
            for n in range(each):
                Image.fromarray(next(waiting[digit])).save(place / f"{n}.png")


if __name__ == "__main__":
    main()
