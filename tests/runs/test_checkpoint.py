import fcntl
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from scommer.errors import RunError
from scommer.files import write_atomically
from scommer.runs import checkpoint


def numbers(folder):
    return [int(path.name.split("-")[1]) for path in sorted(folder.glob("checkpoint-*.safetensors"))]


def silent(message):
    raise AssertionError(f"warned of a good checkpoint: {message}")


# --- save and load


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([[0.1, float("nan")], [float("-inf"), -0.0]]),
        torch.tensor([1e300, -1e-300], dtype=torch.float64),
        torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
        torch.tensor([1.5, -2.25], dtype=torch.float16),
        torch.tensor([2**62, -(2**62)]),
        torch.tensor([-7, 7], dtype=torch.int32),
        torch.arange(256, dtype=torch.uint8),
        torch.tensor([True, False]),
        torch.tensor(3.5),
        torch.zeros(0, dtype=torch.int64),
        torch.arange(6).reshape(2, 3).t(),
        torch.Generator().manual_seed(5).get_state(),
    ],
    ids=lambda t: f"{t.dtype}{list(t.shape)}".removeprefix("torch."),
)
def test_tensors_are_restored_bit_for_bit(tmp_path, tensor):
    checkpoint.save(tmp_path, {"a": tensor, "memories/working/theta": torch.ones(2)}, {})
    tensors, values = checkpoint.load(tmp_path, silent)
    again = tensors["a"]
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
    kept, given = again.contiguous().reshape(-1), tensor.contiguous().reshape(-1)
    assert torch.equal(kept.view(torch.uint8), given.view(torch.uint8))
    assert tensors["memories/working/theta"].tolist() == [1, 1]
    assert values == {}


def test_values_are_restored_unchanged(tmp_path):
    values = {"task": 3, "curve": [0.1 + 0.2, 1e-300], "scores": {"long_term": 2}, "started": "2024 – ü", "none": None,
              "done": False, "large": 2**60, "empty": []}  # fmt: skip
    checkpoint.save(tmp_path, {}, values)
    assert checkpoint.load(tmp_path, silent) == ({}, values)


def test_views_of_one_vector_are_saved_separately(tmp_path):
    theta = torch.arange(6.0)
    checkpoint.save(tmp_path, {"a": theta[:2], "b": theta[2:]}, {})
    tensors, _ = checkpoint.load(tmp_path, silent)
    assert (tensors["a"].tolist(), tensors["b"].tolist()) == ([0, 1], [2, 3, 4, 5])


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert checkpoint.load(tmp_path, silent) is None
    assert checkpoint.load(tmp_path / "missing", silent) is None


def test_the_newest_is_loaded_and_only_two_are_kept(tmp_path):
    for step in range(1, 13):
        path = checkpoint.save(tmp_path, {"step": torch.tensor(step)}, {"step": step})
        assert path.is_file()
        tensors, values = checkpoint.load(tmp_path, silent)
        assert tensors["step"].item() == values["step"] == step
    assert checkpoint.KEPT == 2
    assert numbers(tmp_path) == [11, 12]
    assert len(list(tmp_path.iterdir())) == 2


def test_numbers_may_outgrow_their_digits(tmp_path):
    path = checkpoint.save(tmp_path, {}, {"n": 1})
    path.rename(path.with_name(path.name.replace("000001", "999999")))
    checkpoint.save(tmp_path, {}, {"n": 2})
    assert checkpoint.load(tmp_path, print)[1] == {"n": 2}


def test_files_of_other_programs_are_left_alone(tmp_path):
    theirs = [tmp_path / "checkpoint-best.safetensors", tmp_path / "checkpoint-00001-of-00002.safetensors"]
    for path in theirs:
        path.write_bytes(b"theirs")
    assert checkpoint.load(tmp_path, pytest.fail) is None
    for n in range(4):
        checkpoint.save(tmp_path, {}, {"n": n})
    assert checkpoint.load(tmp_path, pytest.fail)[1] == {"n": 3}
    assert all(path.read_bytes() == b"theirs" for path in theirs)


def test_clearing_removes_all_checkpoints_and_nothing_else(tmp_path):
    checkpoint.save(tmp_path, {}, {})
    checkpoint.save(tmp_path, {}, {}).write_bytes(b"damaged")
    checkpoint.load(tmp_path, lambda message: None)
    (tmp_path / ".checkpoint-000003-ab.safetensors.partial").write_bytes(b"killed while writing")
    (tmp_path / "record.json").write_text("{}")
    checkpoint.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


# --- damage

HARMS = {
    "flipped first byte": lambda b: bytes([b[0] ^ 1]) + b[1:],
    "flipped byte of the values": lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:],
    "flipped last byte": lambda b: b[:-1] + bytes([b[-1] ^ 128]),
    "truncated": lambda b: b[: len(b) // 2],
    "one byte short": lambda b: b[:-1],
    "one byte more": lambda b: b + b"\0",
    "empty": lambda b: b"",
    "zeros": lambda b: bytes(len(b)),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_damaged_checkpoint_is_reported_and_renamed_and_the_previous_one_is_used(tmp_path, harm):
    for step in (1, 2):
        newest = checkpoint.save(tmp_path, {"step": torch.full((5,), step)}, {"step": step})
    newest.write_bytes(harm(newest.read_bytes()))
    warnings = []
    tensors, values = checkpoint.load(tmp_path, warnings.append)
    assert (tensors["step"].tolist(), values) == ([1] * 5, {"step": 1})
    assert len(warnings) == 1
    assert newest.name in warnings[0]
    assert not newest.exists()
    assert newest.with_suffix(".damaged").exists()
    assert checkpoint.load(tmp_path, silent)[1] == {"step": 1}  # the next time there is nothing to warn of


def test_after_damage_numbers_continue_from_the_intact_one(tmp_path):
    for step in (1, 2):
        newest = checkpoint.save(tmp_path, {}, {"step": step})
    newest.write_bytes(b"")
    checkpoint.load(tmp_path, lambda message: None)
    for step in (20, 30):
        checkpoint.save(tmp_path, {}, {"step": step})
        assert checkpoint.load(tmp_path, silent)[1] == {"step": step}
    assert len(numbers(tmp_path)) == 2


def test_without_an_intact_checkpoint_there_is_none(tmp_path):
    paths = [checkpoint.save(tmp_path, {}, {"step": step}) for step in (1, 2)]
    for path in paths:
        path.write_bytes(path.read_bytes()[:-3])
    warnings = []
    assert checkpoint.load(tmp_path, warnings.append) is None
    assert [path.name in text for path, text in zip(reversed(paths), warnings, strict=True)] == [True, True]


def test_a_partial_file_of_a_killed_run_is_not_a_checkpoint(tmp_path):
    path = checkpoint.save(tmp_path, {}, {"step": 1})
    (tmp_path / ".checkpoint-000002-0123456789abcdef.safetensors.partial").write_bytes(path.read_bytes()[:20])
    assert checkpoint.load(tmp_path, silent)[1] == {"step": 1}


# --- writing


def test_a_file_is_written_and_replaced_completely(tmp_path):
    for content in (b"first", b"the second, longer", b""):
        write_atomically(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_several_threads_write_is_complete(tmp_path):
    contents = [bytes([i]) * 300_000 for i in range(8)]
    with ThreadPoolExecutor(8) as writers:
        for done in [writers.submit(write_atomically, tmp_path / "file", c) for c in contents * 4]:
            done.result()
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_folder_is_an_error_with_advice(tmp_path):
    with pytest.raises(RunError, match=r"cannot write .*file: No such file or directory; .* choose another folder"):
        write_atomically(tmp_path / "missing" / "file", b"content")


def test_a_name_that_cannot_be_replaced_leaves_no_partial_file(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        write_atomically(tmp_path / "file", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_content_and_no_partial_file(tmp_path):
    """The system refuses to write more than 1000 bytes."""
    script = """
import resource, sys
from pathlib import Path
from scommer.errors import RunError
from scommer.files import write_atomically
path = Path(sys.argv[1])
write_atomically(path, b"old" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(path, b"new" * 1000)
except RunError as e:
    print(e)
"""
    path = tmp_path / "file"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"cannot write {path}: File too large; what was saved before is intact")
    assert path.read_bytes() == b"old" * 100
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@contextmanager
def largest_file(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones(tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path, {"x": torch.zeros(10)}, {"step": step})
    before = sorted(tmp_path.iterdir())
    with largest_file(5000), pytest.raises(RunError, match="File too large"):
        checkpoint.save(tmp_path, {"x": torch.zeros(10_000)}, {"step": 3})
    assert sorted(tmp_path.iterdir()) == before
    assert checkpoint.load(tmp_path, silent)[1] == {"step": 2}


# --- one process a folder


def test_a_folder_locked_by_another_process_is_refused_until_that_process_ends(tmp_path):
    script = """
import sys
from pathlib import Path
from scommer.runs.checkpoint import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
    folder = tmp_path / "runs" / "mine"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"{folder} is in use by another process"), checkpoint.locked(folder):
            pass
        other.send_signal(signal.SIGKILL)
        assert other.wait(timeout=60) == -signal.SIGKILL
        with checkpoint.locked(folder):
            assert folder.is_dir()


def test_a_folder_is_unlocked_after_use_and_after_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), checkpoint.locked(tmp_path):
            1 / 0  # noqa: B018
    with (
        checkpoint.locked(tmp_path),
        pytest.raises(RunError, match="in use"),
        checkpoint.locked(tmp_path),
    ):
        pass


def test_a_folder_in_which_nothing_was_written_is_removed(tmp_path):
    with checkpoint.locked(tmp_path / "empty"), checkpoint.locked(tmp_path / "full"):
        (tmp_path / "full" / "record.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert (tmp_path / "full" / "record.json").exists()


def test_the_lock_is_an_flock(tmp_path):
    """Other programs, and earlier versions of this one, use the same."""
    with (tmp_path / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(RunError, match="in use"):
            checkpoint.locked(tmp_path).__enter__()
    with checkpoint.locked(tmp_path), (tmp_path / ".lock").open("a") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_in_place_of_the_folder_is_an_error_with_advice(tmp_path):
    (tmp_path / "runs").write_text("a file")
    for folder in (tmp_path / "runs", tmp_path / "runs" / "mine"):
        with pytest.raises(RunError, match=rf"cannot write into {folder}: .*; give another folder with --out"):
            checkpoint.locked(folder).__enter__()


def test_clearing_leaves_what_others_put_there(tmp_path):
    checkpoint.save(tmp_path, {"x": torch.zeros(1)}, {})
    (ours,) = tmp_path.iterdir()
    (tmp_path / ours.with_suffix(".damaged").name).write_bytes(b"ours, set aside")
    foreign = [tmp_path / f"checkpoint-{name}" for name in ("best.pt", "1-notes.txt", "old.damaged")]
    for path in foreign:
        path.write_bytes(b"somebody's")
    (tmp_path / "checkpoint-folder").mkdir()
    (tmp_path / "progress.json").mkdir()
    checkpoint.clear(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*(path.name for path in foreign), "checkpoint-folder", "progress.json"}


@pytest.mark.parametrize(("values", "expected"), [({"again": True}, True), ({"again": False}, False), ({}, True)])
def test_a_checkpoint_says_whether_it_trains_again_and_an_early_one_is_kept(
    tmp_path: Path, values: dict[str, bool], expected: bool
) -> None:
    assert not checkpoint.trains_again(tmp_path)
    checkpoint.save(tmp_path, {"a": torch.zeros(1)}, values)
    assert checkpoint.trains_again(tmp_path) is expected
