"""From a folder of images to predicted classes, on the command line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calling import exit_code
from PIL import Image
from sklearn.datasets import load_digits

from scommer import load_trained, run
from scommer.data import from_arrays, from_folder
from scommer.errors import UsageError
from scommer.lifelong.classifier import LifelongClassifier
from scommer.runs.experiment import Experiment, prepare
from scommer.streams import class_il

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real images of four digits, a folder for each."""
    folder = tmp_path_factory.mktemp("own") / "digits"
    images, labels = load_digits(n_class=4, return_X_y=True)
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / f"digit {label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image.reshape(8, 8) * 15).astype(np.uint8)).save(place / f"{i}.png")
    return folder


def test_a_folder_is_learned_and_new_images_are_classified(digits: Path, tmp_path: Path, capsys: Capture) -> None:
    small = ("--epochs", 6, "--buffer", 40, "--set", "width=8", "--device", "cpu")
    learn = ("run", digits, *small, "--out", tmp_path / "runs")
    assert exit_code(*learn, "--save-weights") == 0
    (run,) = (tmp_path / "runs").iterdir()
    record = json.loads((run / "record.json").read_text())
    assert record["stream"]["classes"] == [f"digit {c}" for c in range(4)]
    assert record["stream"]["tasks"] == [[0, 1], [2, 3]]
    assert run.name.startswith("digits-scommer-40-")
    capsys.readouterr()
    assert exit_code("predict", run, digits / "digit 3", digits / "digit 0", "--json", "--device", "cpu") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    files = [*sorted((digits / "digit 3").iterdir()), *sorted((digits / "digit 0").iterdir())]
    assert [t["file"] for t in shown] == [str(f) for f in files]
    assert np.mean([t["class"] == Path(t["file"]).parent.name for t in shown]) > 0.85
    assert all(0.25 <= t["probability"] <= 1 for t in shown)
    assert exit_code("predict", run, files[0], "--device", "cpu") == 0
    assert capsys.readouterr().out == f"{shown[0]['file']}\t{shown[0]['class']}\t{shown[0]['probability']}\n"
    assert exit_code(*learn, "--tasks", 5) == 2
    assert "4 classes into 5 tasks" in capsys.readouterr().err
    assert exit_code("predict", run, files[0], "--memory", "lng_term") == 2
    assert "did you mean 'long_term'" in capsys.readouterr().err


def test_a_share_of_a_folder_can_be_held_out(digits: Path, tmp_path: Path) -> None:
    learn = ("run", digits, "--method", "sgd", "--epochs", 1, "--set", "width=4", "--device", "cpu")
    images = []
    for share in (0.0, 0.25):
        assert exit_code(*learn, "--validation", share, "--out", tmp_path / str(share)) == 0
        (folder,) = (tmp_path / str(share)).iterdir()
        record = json.loads((folder / "record.json").read_text())
        assert record["experiment"]["validation"] == share
        images.append(sum(record["stream"]["images"]))
    assert images[1] == pytest.approx(0.75 * images[0], abs=4)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_classifier_file_classifies_images_too(dtype: type, digits: Path, tmp_path: Path, capsys: Capture) -> None:
    files = sorted(digits.rglob("*.png"))
    images = np.stack([np.asarray(Image.open(f)) for f in files])
    given = images if dtype is np.uint8 else (images / 255).astype(np.float32)
    labels = [f.parent.name for f in files]
    model = LifelongClassifier(sorted(set(labels)), "er", settings={"epochs": 3, "width": 8}, device="cpu")
    model.partial_fit(given, labels).save(tmp_path / "model")
    expected = model.predict(given).tolist()
    assert exit_code("predict", tmp_path / "model", digits, "--device", "cpu") == 0
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == expected
    assert exit_code("predict", tmp_path / "model", digits, "--memory", "working") == 2
    assert "--memory is for runs" in capsys.readouterr().err


def test_one_damaged_image_does_not_stop_the_others(digits: Path, tmp_path: Path, capsys: Capture) -> None:
    files = sorted(digits.rglob("*.png"))[:40]
    images = np.stack([np.asarray(Image.open(f)) for f in files])
    model = LifelongClassifier(2, "er", settings={"epochs": 1, "width": 8}, device="cpu")
    model.partial_fit(images, [i % 2 for i in range(40)]).save(tmp_path / "model")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    assert exit_code("predict", tmp_path / "model", files[0], broken, files[1], "--device", "cpu") == 2
    shown = capsys.readouterr()
    assert [line.split("\t")[0] for line in shown.out.splitlines()] == [str(files[0]), str(files[1])]
    assert "cannot read" in shown.err
    assert "1 of 3 images could not be read" in shown.err
    beyond = LifelongClassifier(2, "er", settings={"epochs": 1, "width": 8}, device="cpu")
    beyond.partial_fit(images.astype(np.float32), [i % 2 for i in range(40)]).save(tmp_path / "beyond")
    assert exit_code("predict", tmp_path / "beyond", files[0], "--device", "cpu") == 2
    assert "trained on images whose scale differs" in capsys.readouterr().err


def test_models_of_other_data_refuse_image_files(digits: Path, tmp_path: Path, capsys: Capture) -> None:
    files = sorted(digits.rglob("*.png"))[:40]
    images = np.stack([np.asarray(Image.open(f)) for f in files]) / 255
    for name, given, words in (
        ("vectors", images.reshape(40, -1), "vectors"),
        ("standardised", (images - images.mean()) / images.std() + 0.5, "trained on images whose scale differs"),
        ("from -0.2 to 1", 1 - 1.2 * images, "trained on images whose scale differs"),
        ("bytes up to 16", (16 * images).astype(np.uint8), "trained on images whose scale differs"),
    ):
        model = LifelongClassifier(2, "er", settings={"epochs": 1, "width": 8}, device="cpu")
        model.partial_fit(given, [i % 2 for i in range(40)]).save(tmp_path / name)
        assert exit_code("predict", tmp_path / name, files[0], "--device", "cpu") == 2
        assert words in capsys.readouterr().err


def test_a_run_predicts_images_in_the_form_it_was_trained_on(digits: Path, tmp_path: Path, capsys: Capture) -> None:
    files = sorted(digits.rglob("*.png"))
    images, labels = np.stack([np.asarray(Image.open(f)) for f in files]), np.arange(len(files)) % 2
    floats = (images / 255).astype(np.float32)
    experiment = Experiment(class_il((floats, labels), 1), "sgd", settings={"epochs": 1, "width": 4})
    record = run(experiment, out=tmp_path, weights=True, device="cpu")
    assert (record.stream.dtype, record.stream.range) == ("float32", [floats.min(), floats.max()])
    made = load_trained(tmp_path / record.name)
    with pytest.raises(UsageError, match="these images are uint8: expected float32"):
        made.predict(images)
    assert exit_code("predict", tmp_path / record.name, digits, "--device", "cpu") == 0
    shown = [int(line.split("\t")[1]) for line in capsys.readouterr().out.splitlines()]
    assert shown == made.predict(floats).tolist()


def test_a_renamed_class_makes_another_run(digits: Path, tmp_path: Path) -> None:
    data = from_folder(digits)
    streams = [class_il(replace(data, class_names=names), 2) for names in (data.class_names, ("a", "b", "c", "d"))]
    one, other = (prepare(Experiment(stream)).name for stream in streams)
    assert one != other


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "no/such"], "there is no folder no/such"),
        (["run", "s-digits", "--size", "0"], "are for a folder of images"),
        (["run", "s-digits", "--tasks", "2"], "are for a folder of images"),
        (["run", "s-digts"], "did you mean 's-digits'"),
        (["predict", "nowhere", "nothing.png"], "there is no file or folder nothing.png"),
    ],
)
def test_missing_folders_and_wrong_options_are_errors(words: list[str], message: str, capsys: Capture) -> None:
    assert exit_code(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_a_few_images_of_two_classes_do_not_diverge_with_resnet18() -> None:
    """With lr 0.1 they may, up to NaN."""
    r, n, side = np.random.default_rng(0), 60, 20
    y, x = np.mgrid[:side, :side]

    def image(i: int) -> np.ndarray:
        if i % 2:
            return np.sin(x / r.uniform(1, 2) + r.uniform(0, 6)) > 0  # stripes
        return (x - r.uniform(6, 14)) ** 2 + (y - r.uniform(6, 14)) ** 2 < r.uniform(9, 36)  # a disc

    shapes = np.stack([image(i) for i in range(n)])[..., None] * 180
    images = (shapes + r.integers(0, 70, (n, side, side, 3))).astype(np.uint8)
    labels = np.arange(n) % 2
    stream = class_il(from_arrays(images, labels, images[:4], labels[:4]), 1)
    record = run(Experiment(stream, settings={"epochs": 20}), device="cpu")
    assert record.settings["network"] == "resnet18"
    assert record.arrays["loss"].max() < 30
    assert record.arrays["loss"][-1] < 0.2
