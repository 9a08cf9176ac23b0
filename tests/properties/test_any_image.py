"""Any bytes under the name of an image: pixels, or an error that names the file; no program is started."""

import sys
import warnings
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import Damage, cases, checked_call, damages, result_or_refusal
from hypothesis import event, given, strategies as st
from PIL import Image

from scommer.data import from_folder
from scommer.data.folder import SUFFIXES, read_images

# --- files

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 12, 4), dtype=np.uint8)
RGBA = Image.fromarray(PIXELS)
FRAMES: dict[str, Any] = {"save_all": True, "append_images": [RGBA.convert("P").rotate(90)]}
EXIF = Image.Exif()
EXIF[0x0112] = 6  # rotated


def saved(kind: str, mode: str, **options: Any) -> bytes:
    out = BytesIO()
    image = Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 256) if mode == "I;16" else RGBA.convert(mode)
    image.save(out, kind, **options)
    return out.getvalue()


WHOLE = {
    "BMP": [saved("BMP", mode) for mode in ("1", "L", "P", "RGB", "RGBA")],
    "GIF": [saved("GIF", "L"), saved("GIF", "P", **FRAMES), saved("GIF", "RGBA", transparency=0, interlace=1)],
    "JPEG": [*(saved("JPEG", mode, exif=EXIF) for mode in ("L", "RGB", "CMYK")), saved("JPEG", "L", progressive=True)],
    "PNG": [saved("PNG", mode, exif=EXIF) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")],
    "PPM": [*(saved("PPM", mode) for mode in ("1", "L", "RGB", "I;16")), b"P3 2 2 255 " + b"7 " * 12],
    "TIFF": [saved("TIFF", mode) for mode in ("1", "L", "P", "RGB", "CMYK", "F", "I;16")]
    + [saved("TIFF", "RGB", compression=name) for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits")],
    "WEBP": [saved("WEBP", "RGB"), saved("WEBP", "RGBA", lossless=True), saved("WEBP", "RGB", **FRAMES)],
}  # fmt: skip
OTHERS = {
    **{kind: saved(kind, "RGB") for kind in ("DDS", "EPS", "ICO", "ICNS", "PCX", "PDF", "SGI", "TGA")},
    "XBM": saved("XBM", "1"),
    "BLP": saved("BLP", "P"),
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "WMF": b"\xd7\xcd\xc6\x9a\x00\x00" + bytes(60),
    "PSD": b"8BPS\x00\x01" + bytes(60),
    "ImageMagick": b"push graphic-context\nfill 'url(https://localhost/|ls)'\npop graphic-context",
}  # fmt: skip
wholes = st.sampled_from([(kind, content) for kind, contents in WHOLE.items() for content in contents])
suffixes = st.sampled_from(sorted(SUFFIXES))

# --- what must not happen

STARTED: list[str] = []
WATCHED = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
watching = False


def note(event: str, _: object) -> None:
    if watching and event in WATCHED:
        STARTED.append(event)


sys.addaudithook(note)


@pytest.fixture(autouse=True)
def no_program() -> Iterator[None]:
    global watching
    watching = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow: they would be errors in a test, but are not elsewhere
        yield
    watching = False
    assert not STARTED


def test_programs_are_noticed() -> None:
    import subprocess

    subprocess.run(["true"], check=True)
    assert STARTED
    STARTED.clear()


# --- properties


def read(path: Path, channels: int | None, size: int | tuple[int, int] | None) -> np.ndarray | None:
    found = result_or_refusal(lambda: read_images([path], channels, size), path)
    event("read" if found is not None else "refused")
    if found is not None:
        assert found.dtype == np.uint8
        assert (found.ndim, len(found)) == (4, 1)
        assert found.shape[3] == channels if channels else found.shape[3] in (1, 3)
        if size:
            assert found.shape[1:3] == (size if isinstance(size, tuple) else (size, size))
    return found


channels = st.sampled_from([None, 1, 3, 4])
sizes = st.sampled_from([None, None, 1, 8, (5, 9)])


@cases(2)
@given(wholes, damages, suffixes, channels, sizes)
def test_damaged_images(
    tmp_path: Path, whole: tuple[str, bytes], damage: Damage, suffix: str, channels: int | None, size: Any
) -> None:
    path = tmp_path / f"it{suffix}"
    path.write_bytes(damage(whole[1]))
    read(path, channels, size)


@cases()
@given(wholes, suffixes, channels, sizes)
def test_whole_images_under_any_name(
    tmp_path: Path, whole: tuple[str, bytes], suffix: str, channels: int | None, size: Any
) -> None:
    path = tmp_path / f"it{suffix}"
    path.write_bytes(whole[1])
    found = read(path, channels, size)
    assert (found is None) == (whole[1] == saved("TIFF", "F"))  # numbers that are not bytes


@cases(0.5)
@given(st.sampled_from(sorted(OTHERS)), st.none() | damages, suffixes)
def test_other_formats(tmp_path: Path, kind: str, damage: Damage | None, suffix: str) -> None:
    path = tmp_path / f"it{suffix}"
    path.write_bytes(damage(OTHERS[kind]) if damage else OTHERS[kind])
    assert read(path, None, None) is None


@cases()
@given(st.lists(st.tuples(wholes, st.none() | damages, suffixes), min_size=1, max_size=3), sizes)
def test_folders(tmp_path_factory: pytest.TempPathFactory, files: list[Any], size: Any) -> None:
    folder = tmp_path_factory.mktemp("photos")
    for name in ("a", "b"):
        (folder / name).mkdir()
        for i in range(2):
            Image.fromarray(PIXELS[..., i]).save(folder / name / f"{i}.png")
    for i, ((_, content), damage, suffix) in enumerate(files):
        (folder / "a" / f"it{i}{suffix}").write_bytes(damage(content) if damage else content)
    size = size[0] if isinstance(size, tuple) else size
    data = result_or_refusal(lambda: from_folder(folder, size=size), folder / "a" / "it")
    if data is not None:
        assert len(data.train_labels) + len(data.test_labels) == 4 + len(files)


CLASSIFIER = Path(__file__).parents[1] / "compatibility" / "files" / "classifier-scommer.safetensors"


@cases(0.5)
@given(wholes, st.none() | damages)
def test_predict(tmp_path: Path, whole: tuple[str, bytes], damage: Damage | None) -> None:
    path = tmp_path / "it.png"
    path.write_bytes(damage(whole[1]) if damage else whole[1])
    code, printed = checked_call("predict", CLASSIFIER, path, "--device", "cpu")
    assert code in (0, 2)
    assert str(path) in printed
