"""Sweeps on a real Ray cluster of two nodes, one of which dies."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sweeping import assert_same_records, experiments

from scommer.sweeps.sweep import sweep

ray: Any = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings


@pytest.fixture
def cluster() -> Any:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_node_dies_and_its_runs_continue_on_the_other(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    wanted = experiments(seeds=2, epochs=8)
    options = {"device": "cpu", "checkpoint_seconds": 0.1, "weights": True}
    running = sweep(wanted, "ray", out=tmp_path / "ray", **options)
    unfinished: set[Path] = set()

    def kill() -> None:
        while len(unfinished) < 2:  # one on each node
            time.sleep(0.02)
            unfinished.update(
                p.parent for p in tmp_path.rglob("checkpoint-*") if not (p.parent / "record.json").exists()
            )
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    found = list(running)
    killer.join()
    assert len(unfinished) == 2
    assert len(found) == len(wanted)
    list(sweep(wanted, "local", out=tmp_path / "local", **options))
    assert_same_records(tmp_path / "ray", tmp_path / "local")
