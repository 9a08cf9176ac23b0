"""Folders of images: classes, sizes and modes, skipped files, and messages for invalid input."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scommer.data import from_folder
from scommer.data.folder import image_files, read_images
from scommer.errors import RunWarning, UsageError

COLOURS = {"blue": (0, 0, 250), "green": (0, 250, 0), "red": (250, 0, 0)}


def put(path: Path, colour: object, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)  # type: ignore[arg-type]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, colour in COLOURS.items():
        for i in range(5):
            put(tmp_path / "photos" / name / f"{i}.png", tuple(c and c - i for c in colour))
    (tmp_path / "photos" / "red" / "notes.txt").write_text("no image")
    (tmp_path / "photos" / ".cache").mkdir()
    put(tmp_path / "photos" / "red" / "._0.png", (0, 0, 0))
    return tmp_path / "photos"


def test_each_folder_is_a_class_and_a_share_is_held_out(photos: Path) -> None:
    data = from_folder(photos)
    assert (data.name, data.class_names, data.image_shape) == ("photos", ("blue", "green", "red"), (3, 4, 6))
    assert np.bincount(data.train_labels).tolist() == [4, 4, 4]
    assert np.bincount(data.test_labels).tolist() == [1, 1, 1]
    for images, labels in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
        brightest = images.float().mean((2, 3)).argmax(1)
        assert [("red", "green", "blue")[b] for b in brightest] == [data.class_names[c] for c in labels]


def test_train_and_test_folders_are_used_as_given(tmp_path: Path) -> None:
    for part, grey in (("train", 10), ("test", 90)):
        for name in ("a", "b"):
            put(tmp_path / part / name / "deeper" / "one.png", grey, mode="L")
    data = from_folder(tmp_path, name="mine")
    assert (data.name, data.class_names, data.image_shape) == ("mine", ("a", "b"), (1, 4, 6))
    assert data.train_images.unique().tolist() == [10]
    assert data.test_images.unique().tolist() == [90]
    put(tmp_path / "test" / "c" / "one.png", 3, mode="L")
    with pytest.raises(UsageError, match="without a training folder"):
        from_folder(tmp_path)


def test_images_of_different_sizes_need_a_size(photos: Path) -> None:
    wide = photos / "red" / "wide.jpg"
    put(wide, (250, 0, 0), (40, 10))
    with pytest.raises(UsageError, match=r"wide.jpg is 40 × 10 pixels, .* is 6 × 4: give one size"):
        from_folder(photos)
    data = from_folder(photos, size=8)
    assert data.image_shape == (3, 8, 8)


def test_the_centre_is_cropped_and_photographs_are_rotated_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 10), (0, 0, 0))
    image.paste((200, 100, 50), (10, 0, 20, 10))
    image.save(tmp_path / "bands.png")
    (found,) = read_images([tmp_path / "bands.png"], 3, 5)
    assert np.abs(found.astype(int) - [200, 100, 50]).max() < 20  # none of the black around it
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was rotated
    Image.new("RGB", (30, 10)).save(tmp_path / "turned.jpg", exif=exif)
    assert read_images([tmp_path / "turned.jpg"], 3).shape == (1, 30, 10, 3)


def test_modes_are_converted(tmp_path: Path) -> None:
    put(tmp_path / "grey.png", 77, mode="L")
    assert read_images([tmp_path / "grey.png"], 3)[0, 0, 0].tolist() == [77, 77, 77]
    put(tmp_path / "rgba.png", (255, 255, 255, 9), mode="RGBA")
    assert read_images([tmp_path / "rgba.png"], 1).shape == (1, 4, 6, 1)
    assert read_images([tmp_path / "rgba.png"], 4)[0, 0, 0].tolist() == [255, 255, 255, 9]


def test_a_size_is_a_height_and_a_width(tmp_path: Path) -> None:
    halves = np.zeros((8, 12, 3), np.uint8)
    halves[:, 6:] = 200  # the right half
    Image.fromarray(halves).save(tmp_path / "halves.png")
    (found,) = read_images([tmp_path / "halves.png"], 3, (4, 6))
    assert found.shape == (4, 6, 3)
    assert (found[:, 0].max(), found[:, -1].min()) == (0, 200)


def test_16_bit_and_transparent_images_keep_their_look(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 64).reshape(8, 8).astype(np.uint8)
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    assert np.array_equal(read_images([tmp_path / "deep.png"], 1)[0, :, :, 0], ramp)
    Image.fromarray(ramp.astype(np.uint16) * 256 + 7).save(tmp_path / "deep.png")  # the lower 8 bits do not count
    assert np.array_equal(read_images([tmp_path / "deep.png"], 1)[0, :, :, 0], ramp)
    drawn = np.zeros((4, 4, 4), np.uint8)
    drawn[1:3, 1:3, 3] = 255  # black on transparent
    Image.fromarray(drawn).save(tmp_path / "icon.png")
    for channels in (1, 3):
        found = read_images([tmp_path / "icon.png"], channels)[0]
        assert found[1:3, 1:3].max() == 0
        assert found[0].min() == 255
    Image.fromarray(ramp.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(UsageError, match="floating-point"):
        read_images([tmp_path / "float.tiff"], 1)


def test_the_test_folder_may_have_other_names_but_is_unique(tmp_path: Path) -> None:
    for part in ("Train", "val"):
        for name in ("a", "b"):
            put(tmp_path / part / name / "one.png", 3, mode="L")
    assert from_folder(tmp_path).class_names == ("a", "b")
    put(tmp_path / "test" / "a" / "one.png", 3, mode="L")
    with pytest.raises(UsageError, match="besides train"):
        from_folder(tmp_path)


def test_hidden_folders_are_skipped(photos: Path) -> None:
    put(photos / "red" / ".ipynb_checkpoints" / "copy.png", (9, 9, 9))
    assert len(image_files([photos / "red"])) == 5


def test_unsupported_files_are_skipped_with_a_warning(photos: Path) -> None:
    for name in ("a.heic", "b.HEIC", ".hidden.txt", "notes"):
        (photos / "red" / name).write_text("no image")
    (photos / "README.txt").write_text("outside the classes")
    with pytest.warns(RunWarning, match=r"4 unsupported files \(\.heic, \.txt, no suffix\): .*red/") as warned:
        data = from_folder(photos)
    assert len(warned) == 1
    assert len(data.train_labels) + len(data.test_labels) == 15


def test_images_outside_the_class_folders_are_skipped_with_a_warning(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("a", "b"):
            put(tmp_path / part / name / "one.png", 3, mode="L")
        put(tmp_path / part / "stray.png", 3, mode="L")
    put(tmp_path / "stray.png", 3, mode="L")
    put(tmp_path / "._stray.png", 3, mode="L")  # hidden
    with pytest.warns(RunWarning, match=r"3 images outside the class folders: .*stray.png"):
        data = from_folder(tmp_path)
    assert (len(data.train_labels), len(data.test_labels)) == (2, 2)


def test_image_files_warns_of_unsupported_files(photos: Path) -> None:
    with pytest.warns(RunWarning, match=r"1 unsupported file \(\.txt\)"):
        assert len(image_files([photos])) == 15


def test_all_unreadable_images_are_reported_together(photos: Path) -> None:
    for i in range(6):
        (photos / "blue" / f"broken{i}.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"cannot read 6 of 21 images: .*(broken\d\.png.*){5}…"):
        from_folder(photos)


def test_the_size_is_a_whole_number(photos: Path) -> None:
    assert from_folder(photos, size=np.int64(8)).image_shape == (3, 8, 8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"size is 8\.5: give a whole number"):
        from_folder(photos, size=8.5)  # type: ignore[arg-type]


def test_numeric_class_names_are_sorted_as_numbers(tmp_path: Path) -> None:
    for name in ("10", "9", "2"):
        put(tmp_path / name / "one.png", int(name), mode="L")
        put(tmp_path / name / "two.png", int(name), mode="L")
    data = from_folder(tmp_path)
    assert data.class_names == ("2", "9", "10")
    of_class = zip(data.train_labels.tolist(), data.train_images.amax((1, 2, 3)).tolist(), strict=True)
    assert set(of_class) == {(0, 2), (1, 9), (2, 10)}
    put(tmp_path / "b" / "one.png", 3, mode="L")
    put(tmp_path / "b" / "two.png", 3, mode="L")
    assert from_folder(tmp_path).class_names == ("10", "2", "9", "b")


def test_files_and_folders_may_be_mixed(photos: Path) -> None:
    files = image_files([photos / "red" / "3.png", photos / "blue"])
    assert [f"{p.parent.name}/{p.name}" for p in files] == ["red/3.png", *(f"blue/{i}.png" for i in range(5))]
    for path, message in ((photos / "nowhere", "no file or folder"), (photos / ".cache", "contains no images")):
        with pytest.raises(UsageError, match=message):
            image_files([path])


def test_invalid_folders_and_images_are_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="contains 0 folders"):
        from_folder(photos / "red")
    with pytest.raises(UsageError, match="size is 0"):
        from_folder(photos, size=0)
    (photos / "yellow").mkdir()
    with pytest.raises(UsageError, match="yellow contains no images"):
        from_folder(photos)
    put(photos / "whole.png", (1, 2, 3), (300, 300))
    for content in (b"", b"no image at all", (photos / "whole.png").read_bytes()[:80]):
        (photos / "yellow" / "broken.png").write_bytes(content)
        with pytest.raises(UsageError, match=r"cannot read .*broken.png"):
            from_folder(photos)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_only_the_documented_formats_are_decoded(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS would start Ghostscript: no program is started, whatever a file is called."""
    started: list[object] = []
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: started.append(a))
    monkeypatch.setattr("subprocess.check_call", lambda *a, **k: started.append(a))
    (photos / "red" / "0.png").write_bytes(EPS)
    with pytest.raises(UsageError, match=r"red.0\.png \(not one of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP\)"):
        from_folder(photos)
    assert not started


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("no decoder"), KeyError(3), ZeroDivisionError("x")])
def test_whatever_a_decoder_raises_names_the_file(
    photos: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", broken)
    with pytest.raises(UsageError, match=rf"red.0\.png \({str(error) or type(error).__name__}\)"):
        read_images([photos / "red" / "0.png"], None)


def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the size at which Pillow warns."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    put(tmp_path / "large.png", (0, 0, 0), size=(11, 10))
    with pytest.raises(UsageError, match=r"large\.png \(.*110 pixels"):
        read_images([tmp_path / "large.png"], None)


@pytest.mark.parametrize("ending", ["bmp", "gif", "jfif", "jpeg", "jpg", "png", "ppm", "tif", "tiff", "webp"])
def test_every_documented_format_is_read(tmp_path: Path, ending: str) -> None:
    put(tmp_path / f"one.{ending}", (200, 100, 50), size=(16, 16))
    found = read_images([tmp_path / f"one.{ending}"], 3)
    assert found.shape == (1, 16, 16, 3)
    assert np.abs(found.astype(int) - [200, 100, 50]).max() < 8
