"""What a run writes while it trains and at its end, against the same numbers computed from its parts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scommer import Experiment, Record, run
from scommer.analysis.groups import group_runs
from scommer.data import load
from scommer.engine.learner import Learner, Moment
from scommer.errors import RunError
from scommer.nn import networks
from scommer.randomness import generator
from scommer.runs import checkpoint, record as record_module, run as run_module
from scommer.runs.experiment import Plan
from scommer.runs.progress import Watch
from scommer.runs.runner import run_together
from scommer.streams import class_il, gcil

QUICK: dict[str, Any] = {"epochs": 1, "width": 4}
TASKS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


class Seen(Watch):
    """Notes what lies in the folder of the run after each step; ends the process, so to speak, after `steps`."""

    def __init__(self, out: Path, steps: int | None = None) -> None:
        self.out, self.steps = out, steps
        self.started_at: int | None = None
        self.capacity: int | None = None
        self.files: list[int] = []
        self.saved: list[tuple[int, int]] = []

    def begin(self, plan: Plan, learner: Learner, together: int) -> None:
        self.folder, self.started_at = self.out / plan.name, learner.steps[0]
        self.capacity = learner.memories.episodic.capacity if learner.memories.episodic else None

    def moment(self, learner: Learner, moment: Moment) -> None:
        if moment == "step":
            self.files.append(len(list(self.folder.glob("checkpoint-*.safetensors"))))
            shown = json.loads((self.folder / "progress.json").read_text())
            self.saved.append((shown["saved"], learner.steps[0]))
        if self.steps and learner.steps[0] >= self.steps:
            raise MemoryError("the process ends here")


def same(a: Record, b: Record) -> bool:
    return (a.name, a.matrices, a.scores, a.untrained) == (b.name, b.matrices, b.scores, b.untrained)


# --- checkpoints

LABELS = np.arange(120) % 4
FEW = class_il((np.random.default_rng(0).random((120, 8, 8)) + LABELS[:, None, None], LABELS), 2)  # 12 steps


def test_checkpoints_are_written_while_a_run_trains_and_resumed_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment(FEW, "er", 7, settings={**QUICK, "batch": 8})
    first = Seen(tmp_path, steps=10)
    with monkeypatch.context() as slow:
        clock = iter(range(0, 10**9, 100))
        slow.setattr(run_module, "time", type("Clock", (), {"monotonic": lambda: next(clock)}))  # 100 s for each look
        with pytest.raises(MemoryError):
            run(experiment, out=tmp_path, watch=first, checkpoint_seconds=0)
    assert first.files == [0, 1] + [checkpoint.KEPT] * 8
    assert all(saved == step - 1 for saved, step in first.saved)
    assert first.capacity == 7
    second = Seen(tmp_path)
    resumed = run(experiment, out=tmp_path, watch=second, checkpoint_seconds=1e6)
    assert second.started_at == 9
    assert set(second.files) == {checkpoint.KEPT}  # no new ones
    assert resumed.times.seconds > 900  # of which all but a few passed before the end
    assert resumed.code.earlier == []
    assert same(resumed, run(experiment))
    with pytest.raises(MemoryError):
        run(experiment, out=tmp_path, watch=Seen(tmp_path, steps=5), checkpoint_seconds=0, fresh=True)
    rare = Seen(tmp_path)
    again = run(experiment, out=tmp_path, watch=rare, checkpoint_seconds=1e6, fresh=True)
    assert (rare.started_at, set(rare.files)) == (0, {0})
    assert same(again, resumed)


def test_a_record_that_cannot_be_written_leaves_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment(FEW, "sgd", settings={**QUICK, "batch": 8})

    def full(path: Path, content: bytes) -> None:
        raise RunError(f"cannot write {path}: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(record_module, "write_atomically", full)
        with pytest.raises(RunError, match="No space left"):
            run(experiment, out=tmp_path, checkpoint_seconds=0)
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob("checkpoint-*.safetensors"))) == checkpoint.KEPT
    watch = Seen(tmp_path)
    finished = run(experiment, out=tmp_path, watch=watch)
    assert watch.files == []  # nothing was left to train
    assert same(finished, run(experiment))
    assert not list(folder.glob("checkpoint-*"))


# --- the record


@pytest.fixture(scope="module")
def made() -> Record:
    return run(Experiment("s-digits", "scommer", 20, settings={**QUICK, "epochs": 3, "warmup": 0}))


def test_the_untrained_row_and_forward_transfer_are_of_their_setting(made: Record) -> None:
    digits = load("digits")
    settings = {name: made.settings[name] for name in ("active", "activate", "threshold")}
    network = networks.build("small", (1, 8, 8), 10, generator(0, "network"), width=4, **settings).eval()
    x = (digits.test_images.float() / 255 - made.settings["mean"][0]) / made.settings["std"][0]
    with torch.no_grad():
        z = network(x).logits.numpy()
    y = digits.test_labels.numpy()
    for setting in ("class_il", "task_il"):
        expected = []
        for classes in TASKS:
            mine = np.isin(y, classes)
            among = z[mine][:, classes] if setting == "task_il" else z[mine]
            names = np.array(classes) if setting == "task_il" else np.arange(10)
            expected.append(100 * float((names[among.argmax(1)] == y[mine]).mean()))
        assert made.untrained[setting] == pytest.approx(expected)
        r = np.array(made.matrices["working"][setting])
        transfer = np.mean([r[i - 1, i] - expected[i] for i in range(1, 5)])
        assert made.scores["working"][setting]["forward_transfer"] == pytest.approx(transfer, abs=1e-4)
    assert made.untrained["class_il"] != made.untrained["task_il"]


def test_the_arrays_of_a_record_fit_its_matrices(made: Record) -> None:
    images = np.bincount(load("digits").test_labels, minlength=10)
    assert made.inference == "long_term"
    for memory in ("working", "long_term"):
        r, a = made.matrix(memory), made.arrays[f"class_accuracy/{memory}"]
        for i, classes in enumerate(TASKS):
            n = images[list(classes)]
            assert r[:, i] == pytest.approx(a[:, list(classes)] @ n / n.sum(), abs=1e-4)
            hits = r[:, i] * n.sum() / 100
            assert hits == pytest.approx(np.rint(hits), abs=1e-4)
        p = made.arrays[f"class_probability/{memory}"]
        assert made.arrays[f"task_probability/{memory}"] == pytest.approx([p[list(c)].sum() for c in TASKS])
        assert made.arrays[f"task_probability/{memory}"].sum() == pytest.approx(1)
        assert made.arrays[f"reliability/{memory}"][:, 0].sum() == images.sum()
        assert made.arrays[f"activity/{memory}/2"].shape == (10, 8)
    for stage in (1, 2):
        counts = made.arrays[f"a_s/{stage}"].astype(int)
        assert counts.sum(0).tolist() == made.arrays[f"a_g/{stage}"].tolist()
        assert counts.max() > 300  # of about 430 passes of an image of a class


def test_a_stream_whose_classes_recur_is_scored_in_class_il_only() -> None:
    digits = load("digits")
    record = run(Experiment(gcil(digits, tasks=2, samples=60), "sgd", settings={**QUICK, "network": "small"}))
    assert [set(part["working"]) for part in (record.matrices, record.scores)] == [{"class_il"}] * 2
    assert record.untrained.keys() == {"class_il"}
    assert set(record.scores["working"]["class_il"]) == {"accuracy", "last", "forgetting", "backward_transfer"}


# --- validation


def test_each_share_of_validation_has_its_own_stream_and_its_own_group() -> None:
    shares = (0.0, 0.1, 0.3)
    wanted = [Experiment("s-digits", "sgd", seed=n, validation=v, settings=QUICK) for n, v in enumerate(shares)]
    records = run_together(wanted)
    assert [r.experiment.validation for r in records] == list(shares)
    total = sum(records[0].stream.images or ())
    for share, record in zip(shares, records, strict=True):
        assert sum(record.stream.images or ()) == pytest.approx(total * (1 - share), abs=6)
        n = sum(record.arrays["reliability/working"][:, 0])
        assert n == pytest.approx(total * share if share else 1797 - total, abs=6)
    assert len({r.stream.fingerprint for r in records}) == 3
    groups = group_runs(records)
    assert [[r.experiment.validation for r in g.records] for g in groups] == [[v] for v in shares]
    assert len({g.label for g in groups}) == 3
