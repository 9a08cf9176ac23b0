"""Sweeps as Slurm jobs: with submitit's local executor, and on a real cluster of one node."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweeping import assert_same_records, experiments

from scommer import plugins
from scommer.errors import RunError, UsageError
from scommer.runs.runner import run_together
from scommer.sweeps.sweep import sweep

submitit: Any = pytest.importorskip("submitit", reason="submitit is not installed")
from scommer.sweeps.on_slurm import Slurm  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # submitit's own
OPTIONS: dict[str, Any] = {"device": "cpu", "weights": True}
PLUGIN = """
import pathlib
import time
from scommer.engine.learner import Learner

clock = time.monotonic

def step_then_jump(learner, step=Learner._next_step):
    step(learner)
    marker = pathlib.Path("{folder}", f"{{learner.method.label}}-{{learner.seed}}")
    if learner.steps[0] == 60 and not marker.exists():
        marker.touch()
        time.monotonic = lambda: clock() + 3600

Learner._next_step = step_then_jump
"""
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch")
CONF = """
ClusterName=test
SlurmctldHost={host}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={other_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName={host} CPUs={cores} State=UNKNOWN
PartitionName=short Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of each job be up after 60 steps, once: its clock jumps ahead by an hour."""
    (tmp_path / "markers").mkdir()
    (tmp_path / "jump.py").write_text(PLUGIN.format(folder=tmp_path / "markers"))
    monkeypatch.setitem(plugins.LOADED, str(tmp_path / "jump.py"), None)


@pytest.mark.long
@pytest.mark.usefixtures("limited")
def test_jobs_go_back_into_the_queue_when_their_time_is_up(tmp_path: Path) -> None:
    wanted = experiments(("er",), seeds=2, epochs=4)
    place = Slurm(cluster="local", gpus=0, hours=1 / 6)
    found = list(sweep(wanted, place, out=tmp_path / "slurm", **OPTIONS))
    assert len(found) == 2
    for log in (tmp_path / "slurm" / "slurm").glob("*_log.err"):
        assert "this job is timed-out" in log.read_text()
    run_together(wanted, out=tmp_path / "alone", **OPTIONS)
    assert_same_records(tmp_path / "slurm", tmp_path / "alone")


def test_invalid_options() -> None:
    for options, message in (
        ({"gpus": 0.5}, "whole GPUs"), ({"gpus": -1}, "gpus = -1 is invalid"), ({"hours": 0}, "hours = 0 is invalid"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            Slurm(**options)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def start_requeued(done: threading.Event) -> None:
    """Start requeued jobs at once: Slurm would wait for two minutes."""
    while not done.wait(1):
        waiting = subprocess.run(["squeue", "-h", "-r", "-t", "PD", "-o", "%A"], capture_output=True, text=True).stdout
        for job in waiting.split():
            subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now"], stderr=subprocess.DEVNULL)


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster of this machine alone, as in the distribution's packages."""
    paths = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for name in TOOLS}
    if missing := [name for name, path in paths.items() if not path]:
        pytest.skip(f"Slurm is not installed: there is no {missing[0]}")
    if os.getuid() != 0:
        pytest.skip("Slurm is started as root only")
    folder = tmp_path_factory.mktemp("cluster")
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    host = socket.gethostname().split(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(
        CONF.format(host=host, folder=folder, port=free_port(), other_port=free_port(), cores=os.cpu_count() or 1)
    )
    for name in ("state", "spool"):
        (folder / name).mkdir()
    monkeypatch.setenv("SLURM_CONF", str(conf))
    done = threading.Event()
    hurry = threading.Thread(target=start_requeued, args=(done,))
    processes = [
        subprocess.Popen([str(paths["munged"]), "--foreground", "--force", f"--socket={folder}/munge.socket", *files]),
        subprocess.Popen([str(paths["slurmctld"]), "-D", "-f", str(conf)]),
        subprocess.Popen([str(paths["slurmd"]), "-D", "-f", str(conf), "-N", host]),
    ]
    try:
        for _ in range(100):
            state = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True).stdout
            if "idle" in state:
                break
            time.sleep(0.2)
        else:
            pytest.fail(f"no Slurm node: {state} {(folder / 'slurmctld.log').read_text()[-2000:]}")
        hurry.start()
        yield folder
    finally:
        done.set()
        subprocess.run(["scancel", "--user", "root"], timeout=60)
        for _ in range(100):  # until the last job has left, so that no process of it stays
            if not subprocess.run(["squeue", "-h"], capture_output=True, text=True, timeout=60).stdout.strip():
                break
            time.sleep(0.2)
        if hurry.is_alive():
            hurry.join()
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:  # slurmd may wait for its jobs
                process.kill()
                process.wait()


@pytest.mark.long
@pytest.mark.usefixtures("limited", "slurm")
def test_a_real_cluster(tmp_path: Path) -> None:
    """An array of jobs, which are requeued at their limit and continue."""
    wanted = experiments(("er", "sgd"), seeds=1, epochs=4)
    place = Slurm(partition="short", gpus=0, hours=1 / 6)
    found = list(sweep(wanted, place, out=tmp_path / "slurm", **OPTIONS))
    assert len(found) == 2
    logs = "".join(path.read_text() for path in (tmp_path / "slurm" / "slurm").glob("*_log.*"))
    assert "this job is timed-out" in logs
    assert len({path.name.split("_")[0] for path in (tmp_path / "slurm" / "slurm").glob("*_log.out")}) == 1  # one array
    run_together(wanted, out=tmp_path / "alone", **OPTIONS)
    assert_same_records(tmp_path / "slurm", tmp_path / "alone")
    with pytest.raises(RunError, match="Slurm refuses the jobs"):
        list(sweep(wanted, Slurm(partition="long", gpus=0), out=tmp_path / "refused", **OPTIONS))
