"""The command line: what it prints, and its errors for invalid input."""

import hashlib
import json
import os
import re
import shutil
import statistics
import sys
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from calling import QUICK, call
from PIL import Image

from scommer import class_il
from scommer.data import fetch
from scommer.device import choose_device, device_facts
from scommer.streams import STREAMS

WRONG = {
    "unknown stream": (["run", "s-cifar01"], "unknown stream 's-cifar01': did you mean 's-cifar10'?"),
    "unknown method": (["run", "s-digits", "-m", "scomer"], "unknown method 'scomer': did you mean 'scommer'?"),
    "unknown setting": (["run", "s-digits", "--set", "gama=1"], "did you mean 'gamma'?"),
    "another method's setting": (["run", "s-digits", "-m", "er", "--set", "gamma=1"], "unknown setting of er 'gamma'"),
    "unknown variant": (["run", "s-digits", "--variant", "offical"], "did you mean 'official'?"),
    "unknown network": (["run", "s-digits", "--set", "network=resnet"], "unknown network 'resnet'"),
    "not a setting": (["run", "s-digits", "--set", "gamma"], "write name=value"),
    "a word for a number": (["run", "s-digits", "--set", "gamma=much"], "gamma = 'much' is invalid: expected a number"),
    "ratio above 1": (["run", "s-digits", "--set", "active=[0.9,1.2]"], "active = 1.2 is invalid"),
    "ratio of nothing": (["run", "s-digits", "--set", "active=[0.9,0.001]"], "leaves none of"),
    "too few ratios": (["run", "s-digits", "--set", "active=[0.9]"], "the network has 2 stages"),
    "buffer of 0": (["run", "s-digits", "--buffer", "0"], "a buffer of 0 holds nothing"),
    "epochs twice": (["run", "s-digits", "--epochs", "1", "--set", "epochs=2"], "not both"),
    "no epochs": (["run", "s-digits", "--epochs", "0"], "epochs = 0 is invalid"),
    "validation of all": (["run", "s-digits", "--validation", "1.0"], "validation is 1.0"),
    "negative r": (["run", "s-digits", "--set", "r=-1"], "r = -1 is invalid: expected a number from 0 to 1"),
    "no device": (["run", "s-digits", "--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
    "nonsense device": (["run", "s-digits", "--device", "toaster"], "device 'toaster' cannot be used here"),
    "not a run": (["show", "nowhere"], "holds no finished run"),
    "unknown data": (["data", "get", "cifar11"], "did you mean 'cifar10"),
    "missing data": (["run", "s-cifar10", "--data", "nowhere"], "scommer data get cifar10"),
    "a device without values": (["run", "s-digits", "--device", "meta"], "device 'meta' cannot be used here"),
    "a seed below 0": (["run", "s-digits", "--seed", "-1"], "seed = -1 is invalid: expected 0 or more"),
    "no time": (["run", "s-digits", "--minutes", "-1"], "minutes = -1 is invalid"),
    "no time for a table": (["reproduce", "main", "--dry-run", "--minutes", "-1"], "minutes = -1 is invalid"),
    "no device for a table": (["reproduce", "main", "--dry-run", "--device", "gpu9"], "device 'gpu9' cannot be used"),
    "one seed and several": (["run", "s-digits", "--seed", "1", "--seeds", "0"], "--seed or --seeds, not both"),
    "a word for a seed": (["run", "s-digits", "--seed", "abc"], "--seed abc is invalid: expected a whole number"),
    "a word for a buffer": (["run", "s-digits", "-b=x"], "--buffer x is invalid: expected a whole number"),
    "a word for a fraction": (["run", "s-digits", "--validation=no"], "--validation no is invalid: expected a number"),
    "another kind of device": (["run", "s-digits", "--device", "tpu"], "use cpu, cuda or cuda:1"),
    "two methods": (["run", "s-digits", "-m", "er", "--method", "sgd"], "--method is given 2 times: give it once"),
    "two buffers": (["run", "s-digits", "--buffer=10", "-b", "20"], "--buffer is given 2 times"),
    "another place's option": (["reproduce", "main", "--hours", "2"], "--hours is for --on local, ray or slurm"),
    "no stream": (["run"], "missing argument"),
    "two streams": (["run", "s-digits", "s-cifar10"], "s-cifar10"),
    "unknown option": (["run", "s-digits", "--bufer", "3"], "run --help"),
    "an option without a value": (["run", "s-digits", "--seed"], "'--seed' requires an argument"),
    "unknown option without a command": (["--nope"], "--nope: see "),
    "unknown command": (["figur"], "unknown command 'figur': did you mean 'figure'?"),
    "unknown command for data": (["data", "put"], "unknown command 'put': "),
    "no runs side by side": (["reproduce", "main", "--together", "0"], "together = 0 is invalid: expected 1 or more"),
    "listing no method": (["list", "-m", "scomer"], "did you mean 'scommer'?"),
    "listing what is not": (["list", "s-cifar"], "unknown stream"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_clear_line_and_exit_code_2(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = WRONG[case]
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.json"))


def test_a_missing_argument_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "run")
    assert code == 2
    assert "stream" in err.lower()


def test_a_loss_that_is_not_a_number_fails_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(capsys, "run", "s-digits", *QUICK, "--set", "lr=1e30", "--out", str(tmp_path))
    assert code == 1
    assert "the loss became" in err
    assert "lower the learning rate" in err
    assert err.count("\n") == 1
    assert not list(tmp_path.rglob("checkpoint-*"))  # a broken state is never kept


def test_an_unwritable_folder_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = call(capsys, "run", "s-digits", *QUICK, "--out", str(tmp_path / "file"))
    assert code == 1
    assert "cannot write into" in err


def test_run_show_and_run_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["run", "s-digits", "-m", "er", "-b", "20", *QUICK, "--out", str(tmp_path)]
    code, out, _ = call(capsys, *command)
    assert code == 0
    (folder,) = (p.parent for p in tmp_path.rglob("record.json"))
    assert folder.name.startswith("s-digits-er-20-seed0-")
    assert str(folder) in out
    record = json.loads((folder / "record.json").read_text())
    accuracy = record["scores"]["working"]["class_il"]["accuracy"]
    assert f"{accuracy:.2f}" in out
    code, shown, _ = call(capsys, "show", str(folder))
    assert code == 0
    assert call(capsys, "show", str(folder / "record.json"))[:2] == (0, shown)
    assert f"{accuracy:.2f}" in shown
    assert record["stream"]["fingerprint"] in shown
    assert "replay" in shown
    _, as_json, _ = call(capsys, "show", str(folder), "--json")
    assert json.loads(as_json) == record
    written = (folder / "record.json").stat().st_mtime_ns
    code, again, _ = call(capsys, *command)  # finished: shown, not repeated
    assert code == 0
    assert f"{accuracy:.2f}" in again
    assert (folder / "record.json").stat().st_mtime_ns == written
    call(capsys, *command, "--fresh")
    assert (folder / "record.json").stat().st_mtime_ns != written


def test_a_run_finished_by_another_version_gives_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["run", "s-digits", "-m", "sgd", *QUICK, "--out", str(tmp_path)]
    assert "another version" not in call(capsys, *command)[1] + call(capsys, *command)[1]
    monkeypatch.setattr("scommer.runs.runner.sources", lambda: "changed")
    assert "was finished by another version of the code: run it again with --fresh" in call(capsys, *command)[1]


def test_several_seeds_end_with_their_mean(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["run", "s-digits", "-m", "er", "-b", "20", *QUICK, "--out", str(tmp_path), "--seeds", "0-2"]
    out = call(capsys, *command)[1]
    ends = [json.loads(p.read_text())["scores"]["working"]["class_il"] for p in tmp_path.glob("*/record.json")]
    assert len(ends) == 3
    assert "er on s-digits, seeds 0, 1, 2" in out
    for measure in ("accuracy", "forgetting"):
        values = [end[measure] for end in ends]
        assert f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}" in out


def test_streams_made_by_a_function_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STREAMS, "s-own", ("digits", lambda data, validation, name: class_il(data, 5, name=name)))
    assert re.search(r"s-own +│ digits +│ – ", call(capsys, "list")[1])
    assert "s-own has no presets" in call(capsys, "list", "s-own", "-m", "er")[1]


def test_different_settings_have_different_folders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for extra in ([], ["--set", "lr=0.05"], ["--seed", "1"], ["--validation", "0.2"]):
        assert call(capsys, "run", "s-digits", "-m", "sgd", *QUICK, "--out", str(tmp_path), *extra)[0] == 0
    assert len(list(tmp_path.rglob("record.json"))) == 4


def test_help_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ([], ["run"], ["list"], ["show"], ["demo"], ["data", "get"]):
        code, out, _ = call(capsys, *command, "--help")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
    assert "scommer" in call(capsys, "--version")[1]


def test_list_names_all_streams_methods_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "list")
    for name in ("s-cifar10", "gcil-longtail", "s-digits", "scommer", "cls-er", "der++", "joint"):
        assert name in out
    _, out, _ = call(capsys, "list", "gcil-longtail", "-m", "scommer", "-b", "500")
    assert "0.05" in out  # η of the paper's table
    assert "pi_s" in out


@pytest.mark.parametrize("option", [["-m", "er"], ["-b", "500"], ["--variant", "paper"]])
def test_list_needs_a_stream_to_show_settings(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    code, _, err = call(capsys, "list", *option)
    assert code == 2
    assert f"`scommer list s-cifar10 {'--method er' if option[1] == 'er' else ''}" in err
    assert call(capsys, "list", "s-cifar10", *option)[0] == 0


@pytest.mark.filterwarnings("always::scommer.errors.RunWarning")
def test_warnings_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("L", (8, 8), 40 * i).save(tmp_path / "photos" / name / f"{i}.png")
    (tmp_path / "photos" / "a" / "more.heic").write_bytes(b"")
    command = ["run", str(tmp_path / "photos"), "-m", "er", "-b", "4", *QUICK, "--out", str(tmp_path / "runs")]
    code, _, err = call(capsys, *command)
    assert code == 0
    assert err == f"scommer: warning: skipped 1 unsupported file (.heic): {tmp_path}/photos/a/more.heic\n"


def test_data_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    _, out, _ = call(capsys, "data", "where", "--data", str(tmp_path))
    assert "cifar10: present" in out
    assert "cifar100: missing" in out


def test_demo_compares_and_draws(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scommer.runs.presets.presets", _one_epoch())
    code, out, _ = call(capsys, "demo", "--out", str(tmp_path))
    assert code == 0
    for word in ("scommer", "sgd", "er", "long_term", "forgetting", "Task-IL"):
        assert word in out
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def _one_epoch() -> object:
    from scommer.runs.presets import presets

    tables = json.loads(json.dumps(presets()))
    tables["stream"]["s-digits"] |= {"epochs": 1, "width": 4}
    return lambda: tables


def test_help_does_not_import_torch() -> None:
    import subprocess

    code = "import sys, scommer.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_data_get_downloads_a_data_set(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a local server."""
    served, root = tmp_path / "served", tmp_path / "root"
    served.mkdir()
    (served / "made").mkdir()
    (served / "made" / "batch").write_bytes(b"images")
    with tarfile.open(served / "made.tar.gz", "w:gz") as archive:
        archive.add(served / "made", "made")
    handler = partial(SimpleHTTPRequestHandler, directory=str(served))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        md5 = hashlib.md5((served / "made.tar.gz").read_bytes()).hexdigest()
        source = fetch.Source(f"http://127.0.0.1:{server.server_port}/made.tar.gz", "made.tar.gz", md5, "made", 10**6)
        monkeypatch.setitem(fetch.SOURCES, "cifar10", source)
        code, out, err = call(capsys, "data", "get", "cifar10", "--data", str(root))
        server.shutdown()
    assert code == 0, err
    assert (root / "made" / "batch").read_bytes() == b"images"
    assert "complete in" in out


def test_several_seeds_in_one_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call(
        capsys, "run", "s-digits", "-m", "sgd", "--seeds", "0", "2", "2", "5", *QUICK, "--out", str(tmp_path)
    )
    assert code == 0, err
    names = sorted(p.parent.name.rsplit("-", 1)[0] for p in tmp_path.rglob("record.json"))
    assert names == ["s-digits-sgd-seed0", "s-digits-sgd-seed2", "s-digits-sgd-seed5"]
    assert out.count("record: ") == 3
    _, out, _ = call(capsys, "show", str(next(tmp_path.glob("*seed5*"))))
    assert re.search(r"s for 44 steps side by side with 2 more, finished", out)


def test_fresh_removes_everything_of_the_previous_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["run", "s-digits", "-m", "sgd", *QUICK, "--out", str(tmp_path)]
    call(capsys, *command, "--save-weights")
    assert list(tmp_path.rglob("weights.safetensors"))
    call(capsys, *command, "--fresh")
    assert not list(tmp_path.rglob("weights.safetensors"))


def test_what_list_shows_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    from scommer.runs.presets import resolve
    from scommer.runs.settings import as_dict, parse, written

    settings = as_dict(*resolve("s-cifar10", "scommer", 200))
    assert dict(parse(f"{k}={written(v)}") for k, v in settings.items() if v is not None) == {
        k: v for k, v in settings.items() if v is not None
    }
    again = dict(parse(f"{k}={written(v)}") for k, v in settings.items())
    assert as_dict(*resolve("s-cifar10", "scommer", 200, overrides=again)) == settings
    assert resolve("s-cifar10", "scommer", 200, overrides=dict([parse("drop_last=True"), parse("active=0.9")]))


def test_a_run_too_short_for_semantic_dropout_gives_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, out, _ = call(capsys, "run", "s-digits", *QUICK, "--out", str(tmp_path))
    assert "semantic dropout starts only after a task" in out


def test_table_prints_the_repositorys_records_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    results = str(Path(__file__).parents[2] / "results")
    for form in ("terminal", "markdown", "csv", "latex"):
        code, out, _ = call(capsys, "table", "main", "--runs", results, "--as", form)
        assert code == 0
        assert "69.19" in out
    _, done, _ = call(capsys, "table", "main", "--runs", results, "--done", "--as", "markdown")
    assert "–" not in done
    assert "scommer, 200" in done
    _, part, _ = call(capsys, "table", "main", "--runs", f"{results}@seed=0@method=er", "--done", "--as", "markdown")
    assert "| er, 200 |" in part
    assert "scommer" not in part
    code, _, err = call(capsys, "table", "main", "--runs", "reslts")
    assert code == 2
    assert "reslts holds no finished run: there is no such folder" in " ".join(err.split())
    code, _, err = call(capsys, "table", "main", "--as", "html")
    assert code == 2
    assert "unknown form" in err


def test_a_table_without_runs_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "table", "main")
    assert code == 0
    assert "SCoMMER" in out or "scommer" in out
    assert err == (
        "scommer: no runs in results, so these are only the paper's numbers: name your own folder with --runs, "
        "or run this in a clone of the repository, which has ours\n"
    )
    for folder in ("results", "elsewhere"):
        code, out, err = call(capsys, "table", "main", "--runs", folder)
        assert (code, out) == (2, ""), folder
        assert f"{folder} holds no finished run: there is no such folder" in err
    (tmp_path / "results").mkdir()
    code, _, err = call(capsys, "table", "main", "--runs", "results")
    assert (code, "there is no record.json in it or below it" in err) == (2, True)
    assert call(capsys, "table", "main", "--done")[0] == 2
    assert call(capsys, "results")[0] == 2


def test_reproduce_lists_what_a_table_needs(
    capsys: pytest.CaptureFixture[str],
    cifar: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scommer.bench.timing.step_ms", lambda *_: 1000.0)
    one = "s-cifar10-scommer-200-seed0-99ddeb"  # with today's preset; more may come to the tree
    shutil.copytree(Path(__file__).parents[2] / "results" / one, tmp_path / one)
    results, root = str(tmp_path), str(cifar("cifar10"))
    code, out, err = call(
        capsys, "reproduce", "ablation", "--seeds", "0", "1", "--runs", results, "--data", root, "--dry-run"
    )
    assert code == 0, err
    here = device_facts(choose_device(None))["name"]
    minutes = f"about 12 days at 1000.0 ms per step on {here}"  # as measured here, not on the H200 of the record
    assert f"1 of 14 runs are done; 13 to go, 1,014,000 steps, {minutes}" in " ".join(out.split())
    part = ["--method", "er", "--stream", "s-cifar10", "--buffer", "200"]
    code, out, _ = call(capsys, "reproduce", "ablation", *part, "--runs", results, "--data", root, "--dry-run")
    assert "0 of 3 runs are done; 3 to go, 234,000 steps" in out
    nowhere = ["--data", str(tmp_path / "nowhere")]
    code, out, _ = call(capsys, "reproduce", "ablation", *part, "--runs", results, *nowhere, "--dry-run")
    assert code == 0  # to list them takes no data
    assert "0 of 3 runs are done; 3 to go; download the data to count their steps" in " ".join(out.split())
    assert call(capsys, "reproduce", "ablation", *part, "--runs", results, *nowhere)[0] == 2
    code, _, err = call(capsys, "reproduce", "ablation", "--method", "sgd", "--dry-run")
    assert code == 2
    assert "unknown method for this part of the table 'sgd'" in err
    assert call(capsys, "reproduce", "mian", "--dry-run")[0] == 2
