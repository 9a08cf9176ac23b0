"""Any checkpoint: a run resumes from it to the same record, or starts over, or refuses it; never a traceback."""

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from cases import Damage, cases, changed_json, damages, odd_numbers, result_or_refusal
from hypothesis import event, given, strategies as st
from torch import Tensor

from scommer import Experiment, class_il, run
from scommer.files import read_safetensors
from scommer.runs import checkpoint
from scommer.runs.record import Record

rng = np.random.default_rng(0)
LABELS = np.arange(64) % 4
IMAGES = (rng.random((64, 4, 4)) * 90 + 40 * LABELS[:, None, None]).astype(np.uint8)
STREAM = class_il((IMAGES, LABELS), tasks=2, name="tiny")
SETTINGS = {"network": "mlp", "width": 4, "epochs": 2, "batch": 8, "replay": 4, "pad": 0}
METHODS = ("er", "scommer")


def experiment(method: str) -> Experiment:
    return Experiment(STREAM, method, buffer=8, settings=SETTINGS)


class Files:
    """What a run leaves in its folder when it is stopped, and the record that it ends with."""

    def __init__(self, method: str, folder: Path) -> None:
        self.method, self.folder = method, folder
        self.whole = run(experiment(method), device="cpu")
        seen: list[dict[str, bytes]] = []
        save = checkpoint.save

        def kept(where: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> Path:
            path = save(where, tensors, values)
            seen.append({p.name: p.read_bytes() for p in where.glob("checkpoint-*")})
            return path

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "save", kept)
            run(experiment(method), device="cpu", out=folder, checkpoint_seconds=0.0)
        self.name = self.whole.name
        self.stops = [files for files in seen if len(files) == 2]  # after each step

    def resume(self, files: dict[str, bytes]) -> Record:
        """Run with these checkpoints in the folder."""
        with TemporaryDirectory() as out:
            (Path(out) / self.name).mkdir()
            for name, content in files.items():
                (Path(out) / self.name / name).write_bytes(content)
            return run(experiment(self.method), device="cpu", out=out)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    return {method: Files(method, tmp_path_factory.mktemp(method)) for method in METHODS}


def check_same(record: Record, whole: Record) -> None:
    assert record.matrices == whole.matrices
    assert record.scores == whole.scores
    assert record.untrained == whole.untrained
    assert record.times.steps == whole.times.steps
    assert set(record.arrays) == set(whole.arrays)
    for name, array in whole.arrays.items():
        assert np.array_equal(record.arrays[name], array, equal_nan=True), name


methods, stops = st.sampled_from(METHODS), st.floats(0, 1, exclude_max=True)


@cases(0.3)
@given(methods, stops, st.lists(st.none() | damages, min_size=2, max_size=2))
def test_damaged_bytes(stopped: dict[str, Files], method: str, stop: float, harms: list[Damage | None]) -> None:
    """A damaged file is never used: the one before is, or the run starts over."""
    run_files = stopped[method]
    intact = run_files.stops[int(stop * len(run_files.stops))]
    pairs = zip(sorted(intact.items()), harms, strict=True)
    files = {name: harm(content) if harm else content for (name, content), harm in pairs}
    check_same(run_files.resume(files), run_files.whole)


def rewritten(tensors: dict[str, Tensor], values: Any) -> dict[str, bytes]:
    """A checkpoint with this content and the digest that belongs to it."""
    content = safetensors.torch.save(tensors, {"values": json.dumps(values)})
    return {f"checkpoint-000009-{sha256(content).hexdigest()[:16]}.safetensors": content}


def content(files: dict[str, bytes]) -> tuple[dict[str, Tensor], str]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "it").write_bytes(files[max(files)])
        tensors, metadata = read_safetensors(Path(folder) / "it")
    return tensors, metadata["values"]


def resumed(files: Files, tensors: dict[str, Tensor], values: Any, named: str) -> Record | None:
    """Return the record that a run ends with; None if it refuses the checkpoint, in an error that says what."""
    record = result_or_refusal(lambda: files.resume(rewritten(tensors, values)), named)
    event("refused" if record is None else "resumed")
    return record


@cases(0.5)
@given(methods, stops, st.data())
def test_changed_values(stopped: dict[str, Files], method: str, stop: float, data: st.DataObject) -> None:
    """Where a run resumes although plain values were changed, its record is complete."""
    files = stopped[method]
    tensors, values = content(files.stops[int(stop * len(files.stops))])
    changed = data.draw(changed_json(values, most=2))
    if record := resumed(files, tensors, changed, files.name):
        assert np.isfinite(record.accuracy())
        before = json.loads(values)
        if all(changed[name] == before[name] for name in ("task", "epoch", "batch", "offered", "curve", "scores")):
            check_same(record, files.whole)


CHANGES = ("remove", "rename", "shape", "dtype", "flat")


@cases(0.5)
@given(methods, stops, st.floats(0, 1, exclude_max=True), st.sampled_from(CHANGES), st.integers(0, 9))
def test_tensors_that_do_not_fit(
    stopped: dict[str, Files], method: str, stop: float, place: float, change: str, n: int
) -> None:
    """A state of another form is refused, or the tensor is not needed any more: the record is the same."""
    files = stopped[method]
    tensors, values = content(files.stops[int(stop * len(files.stops))])
    name = sorted(tensors)[int(place * len(tensors))]
    tensor = tensors.pop(name)
    if change == "rename":
        tensors[f"{name}/{n}"] = tensor
    elif change == "shape":
        tensors[name] = torch.zeros((n, *tensor.shape), dtype=tensor.dtype)
    elif change == "dtype":
        kinds = [torch.int8, torch.float16, torch.complex64, torch.bool, torch.uint8, torch.int64, torch.float32]
        tensors[name] = tensor.to(next(k for k in kinds[n % 5 :] if k != tensor.dtype))
    elif change == "flat":
        tensors[name] = tensor.flatten()[: n % 3].clone()
        if tensors[name].shape == tensor.shape:
            return
    record = resumed(files, tensors, json.loads(values), files.name)
    if record:  # the tensor is not needed any more
        check_same(record, files.whole)


@cases(0.2)
@given(methods, stops, st.floats(0, 1, exclude_max=True), odd_numbers)
def test_tensors_of_other_numbers(
    stopped: dict[str, Files], method: str, stop: float, place: float, number: float
) -> None:
    """Numbers that no training gives end in a record of finite scores, or in the package's error."""
    files = stopped[method]
    tensors, values = content(files.stops[int(stop * len(files.stops))])
    name = sorted(tensors)[int(place * len(tensors))]
    tensor = tensors[name]
    if tensor.is_floating_point():
        tensor.copy_(torch.tensor(float(min(max(number, -1e300), 1e300)), dtype=torch.float64))
    else:
        tensor.fill_(int(min(max(number, -1), 127)) if number == number else 0)  # what every type holds
    if record := resumed(files, tensors, json.loads(values), ""):
        assert np.isfinite(record.accuracy())


def test_an_intact_checkpoint_is_resumed(stopped: dict[str, Files]) -> None:
    for files in stopped.values():
        for stop in files.stops[::4]:
            check_same(files.resume(stop), files.whole)
