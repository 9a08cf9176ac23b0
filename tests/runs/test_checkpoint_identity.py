"""A checkpoint of another run, or one whose content does not fit, is named and never used."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from scommer import Experiment, run
from scommer.engine.learner import Learner, Moment
from scommer.errors import RunError
from scommer.files import read_safetensors
from scommer.runs.progress import Watch
from scommer.runs.runner import Interrupted

QUICK: dict[str, Any] = {"network": "small", "width": 4, "epochs": 1}


class Stop(Watch):
    """Asks a run to stop after some steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def moment(self, learner: Learner, moment: Moment) -> None:
        self.left -= moment == "step"
        if not self.left:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)

    def warn(self, message: str) -> None: ...


def experiment(method: str = "er", seed: int = 0, **settings: Any) -> Experiment:
    return Experiment("s-digits", method, buffer=20, seed=seed, settings={**QUICK, **settings})


def stopped(e: Experiment, out: Path) -> Path:
    """The folder of a run that was stopped in its second task."""
    with pytest.raises(Interrupted):
        run(e, out=out, device="cpu", watch=Stop(12))
    (folder,) = out.iterdir()
    return folder


def exchanged(theirs: Path, ours: Path) -> Path:
    """Our folder with the other's checkpoint in place of our own."""
    for path in ours.glob("checkpoint-*"):
        path.unlink()
    for path in theirs.glob("checkpoint-*"):
        shutil.copy(path, ours)
    return ours


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (experiment(seed=1), "seed 1, not 0"),
        (experiment(lr=0.05), "lr 0.05, not 0.1"),
        (experiment("der++"), "method der\\+\\+, not er"),
        (experiment(width=6), "width 6, not 4"),
    ],
)
def test_a_checkpoint_of_another_run_is_named_and_not_used(tmp_path: Path, other: Experiment, named: str) -> None:
    theirs, ours = stopped(other, tmp_path / "theirs"), stopped(experiment(), tmp_path / "ours")
    exchanged(theirs, ours)
    before = sorted(p.name for p in ours.glob("checkpoint-*"))
    with pytest.raises(RunError, match=f"belongs to another run .*{named}"):
        run(experiment(), out=tmp_path / "ours", device="cpu")
    assert not (ours / "record.json").exists()
    assert sorted(p.name for p in ours.glob("checkpoint-*")) == before  # nothing is lost
    record = run(experiment(), out=tmp_path / "ours", device="cpu", fresh=True)
    whole = run(experiment(), device="cpu")
    assert record.matrices == whole.matrices


def test_the_same_images_in_another_order_of_tasks_are_another_run(tmp_path: Path) -> None:
    from scommer import class_il
    from scommer.data import load

    one, other = (class_il(load("digits"), tasks=5, order=order, name="d") for order in ("given", "shuffled"))
    theirs = stopped(Experiment(other, "er", 20, settings=QUICK), tmp_path / "theirs")
    ours = stopped(Experiment(one, "er", 20, settings=QUICK), tmp_path / "ours")
    exchanged(theirs, ours)
    with pytest.raises(RunError, match="other images"):
        run(Experiment(one, "er", 20, settings=QUICK), out=tmp_path / "ours", device="cpu")


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> None:
    """Change a checkpoint's content, under a name with the digest that belongs to it."""
    (path,) = folder.glob("checkpoint-*")
    tensors, metadata = read_safetensors(path)
    values = json.loads(metadata["values"])
    change(tensors, values)
    content = safetensors.torch.save(tensors, {"values": json.dumps(values)})
    path.unlink()
    (folder / f"checkpoint-000001-{sha256(content).hexdigest()[:16]}.safetensors").write_bytes(content)


CHANGES: list[Callable[[dict[str, torch.Tensor], dict[str, Any]], object]] = [
    *(
        lambda t, v, name=name: v.pop(name)
        for name in ("task", "epoch", "batch", "offered", "curve", "scores", "seconds")
    ),
    *(lambda t, v, bad=bad: v.update(task=bad) for bad in (-1, 6, 1.5, "one", None)),
    *(lambda t, v, bad=bad: v.update(batch=bad) for bad in (-1, 10**9)),
    lambda t, v: v.update(scores={"working": 99}),
    lambda t, v: v.update(scores=5),
    lambda t, v: v.update(scores={**v["scores"], "other": 1}),
    lambda t, v: v.update(curve=""),
    lambda t, v: v.update(curve=[1.0] * 9),
    lambda t, v: v.update(started=5),
    lambda t, v: v.update(sources=[]),
    lambda t, v: v.update(seconds=-1.0),
    lambda t, v: v.update(offered=v["offered"] + 1),
    lambda t, v: t["memories/episodic/y"].fill_(-1),
    lambda t, v: t["scores/untrained/0/class_il"].fill_(float("nan")),
    lambda t, v: t.pop("scores/working/0/class_accuracy"),
    lambda t, v: t.update({"scores/working/0/class_il": torch.zeros(3, dtype=torch.float64)}),
    lambda t, v: t.pop("memories/working/theta"),
    lambda t, v: t.pop("order"),
    lambda t, v: t.update({"memories/more": torch.zeros(3)}),
    lambda t, v: t.update({"memories/working/theta": torch.zeros(3)}),
    lambda t, v: t.update({"memories/working/theta": t["memories/working/theta"].double()}),
    lambda t, v: t.update({"generator/order": torch.zeros(7, dtype=torch.uint8)}),
    lambda t, v: t["order"].fill_(10**6),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(experiment(), tmp_path_factory.mktemp("saved"))


@pytest.mark.parametrize("change", CHANGES)
def test_content_that_does_not_fit_is_an_error(tmp_path: Path, saved: Path, change: Any) -> None:
    shutil.copytree(saved, tmp_path / saved.name)
    rewritten(tmp_path / saved.name, change)
    with pytest.raises(RunError, match="does not fit this run"):
        run(experiment(), out=tmp_path, device="cpu")


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\xff" * 64])
def test_a_file_with_a_valid_digest_that_is_no_checkpoint(tmp_path: Path, saved: Path, content: bytes) -> None:
    shutil.copytree(saved, tmp_path / saved.name)
    for path in (tmp_path / saved.name).glob("checkpoint-*"):
        path.unlink()
    name = f"checkpoint-000001-{sha256(content).hexdigest()[:16]}.safetensors"
    (tmp_path / saved.name / name).write_bytes(content)
    with pytest.raises(RunError, match="is not a checkpoint"):
        run(experiment(), out=tmp_path, device="cpu")
