"""Any classifier file: it loads and predicts probabilities, or one error names the file."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from cases import Damage, cases, changed_json, checked_call, damages, odd_numbers, result_or_refusal
from hypothesis import event, given, strategies as st
from PIL import Image
from torch import Tensor

from scommer import LifelongClassifier
from scommer.errors import UsageError
from scommer.lifelong.state import _digest

FILES = Path(__file__).parents[1] / "compatibility" / "files"
WHOLE = {method: (FILES / f"classifier-{method}.safetensors").read_bytes() for method in ("scommer", "der++")}
TENSORS = {method: safetensors.torch.load(content) for method, content in WHOLE.items()}
ABOUT = {method: tensors["about"].numpy().tobytes().decode() for method, tensors in TENSORS.items()}
methods = st.sampled_from(sorted(WHOLE))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Image.new("L", (8, 8), 99).save(tmp_path / "it.png")
    return tmp_path / "model"


def write(path: Path, tensors: dict[str, Tensor], about: str) -> None:
    """Write a file with this content and the digest that belongs to it."""
    held = {**tensors, "about": torch.from_numpy(np.frombuffer(about.encode(), np.uint8).copy())}
    path.write_bytes(safetensors.torch.save(held, {"lifelong": _digest(held)}))


def images_for(model: LifelongClassifier) -> np.ndarray:
    dtype, shape = model.form_
    pixels = np.random.default_rng(0).random((6, *shape))
    return (pixels * 255).astype(dtype) if dtype == "uint8" else pixels.astype(dtype)


def check_use(path: Path) -> None:
    """Load a file, predict, save it again, learn, and give it to the command."""
    model = result_or_refusal(lambda: LifelongClassifier.load(path, device="cpu"), path)
    event("refused" if model is None else "loaded")
    checked_call("predict", path, path.with_name("it.png"), "--device", "cpu")
    if model is None:
        return
    x = images_for(model)
    p = result_or_refusal(lambda: model.predict_proba(x, layout="NCHW"), "not finite")
    if p is None:
        return
    assert p.shape == (6, len(model.classes_))
    assert np.isfinite(p).all()
    assert np.allclose(p.sum(1), 1, atol=1e-4)
    assert set(model.predict(x, layout="NCHW").tolist()) <= set(model.classes_.tolist())
    assert model.history_
    model.save(path)
    again = LifelongClassifier.load(path, device="cpu")
    assert np.array_equal(again.predict_proba(x, layout="NCHW"), p)


@cases()
@given(methods, damages)
def test_damaged_bytes(file: Path, method: str, damage: Damage) -> None:
    content = damage(WHOLE[method])
    file.write_bytes(content)
    try:
        LifelongClassifier.load(file, device="cpu")
        intact = True
    except UsageError as e:
        intact, said = False, str(e)
    if intact:  # only the header was changed, and not what it says
        tensors = safetensors.torch.load(content)
        assert tensors.keys() == TENSORS[method].keys()
        assert all(torch.equal(t, TENSORS[method][name]) for name, t in tensors.items())
    else:
        assert str(file) in said


@cases()
@given(methods, st.data())
def test_changed_values(file: Path, method: str, data: st.DataObject) -> None:
    about = data.draw(changed_json(ABOUT[method]))
    write(file, TENSORS[method], json.dumps(about))
    check_use(file)


@cases(0.5)
@given(methods, damages)
def test_damaged_values(file: Path, method: str, damage: Damage) -> None:
    write(file, TENSORS[method], damage(ABOUT[method].encode()).decode(errors="replace"))
    check_use(file)


CHANGES = ("remove", "rename", "shape", "dtype", "numbers", "numbers")


@cases(0.5)
@given(methods, st.floats(0, 1, exclude_max=True), st.sampled_from(CHANGES), st.integers(0, 9), odd_numbers)
def test_changed_tensors(file: Path, method: str, place: float, change: str, n: int, number: float) -> None:
    tensors = {name: t.clone() for name, t in TENSORS[method].items() if name != "about"}
    name = sorted(tensors)[int(place * len(tensors))]
    tensor = tensors.pop(name)
    if change == "rename":
        tensors[f"{name}.{n}"] = tensor
    elif change == "shape":
        tensors[name] = torch.zeros((n, *tensor.shape), dtype=tensor.dtype)
    elif change == "dtype":
        kinds = (torch.int8, torch.float16, torch.complex64, torch.bool, torch.int64, torch.float64, torch.bfloat16)
        tensors[name] = tensor.to(kinds[n % len(kinds)])
    elif change == "numbers":
        wide = tensor.to(torch.float64)
        wide.view(-1)[:: n + 1] = float(min(max(number, -1e300), 1e300))
        tensors[name] = (wide if tensor.is_floating_point() else wide.nan_to_num().clamp(-9, 99)).to(tensor.dtype)
    write(file, tensors, ABOUT[method])
    check_use(file)
    learn(file, widen=n % 2 == 0)


def learn(path: Path, widen: bool) -> None:
    """Learning from a state that does not fit is refused before anything is learned, or it works."""
    try:
        model = LifelongClassifier.load(path, device="cpu")
    except UsageError:
        return
    x = images_for(model)
    if widen:
        result_or_refusal(lambda: model.add_classes(["new"]), "")
    before = result_or_refusal(lambda: model.predict_proba(x, layout="NCHW"), "not finite")
    learned = result_or_refusal(lambda: model.partial_fit(x, list("ab") * 3, layout="NCHW"), "")
    after = result_or_refusal(lambda: model.predict_proba(x, layout="NCHW"), "not finite")
    if learned is None:
        assert (after is None) == (before is None)
        assert after is None or np.array_equal(after, before)
    else:
        assert after is not None
