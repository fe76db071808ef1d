"""Tasks on a Ray cluster of two nodes on this machine, one of which is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optest.errors import BackendError
from optest.ledger import Ledger
from optest.running.executor import TaskTimedOut, WorkerDied

ray = pytest.importorskip("ray", reason="the extra ray is not installed")


NOTE = 'echo $PPID >> "$0"; sleep 0.2'
"""A shell command that appends its worker's process id to a file; the node imports nothing for it."""


def no_device(replaces_crashed: bool) -> None:
    raise BackendError("no such device")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    cluster.second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.conformance
def test_tasks_on_two_nodes_one_of_which_is_lost(cluster: Any, tmp_path: Path) -> None:
    """Each task returns once; only those of the lost node run twice. Crashes and hangs fail no other task."""
    from optest.running.ray_executor import RayExecutor

    with RayExecutor(timeout=5.0) as executor:
        assert executor.max_workers == 2
        crash, hang, wrong = (
            executor.submit(os.abort),
            executor.submit(time.sleep, 60),
            executor.submit(int, "x"),
        )
        with pytest.raises(WorkerDied) as died:
            crash.result(60)
        assert died.value.signal == "SIGABRT"
        with pytest.raises(ValueError, match="invalid literal"):
            wrong.result(60)
        with pytest.raises(TaskTimedOut, match="more than 5 s"):
            hang.result(60)

        files = [tmp_path / str(number) for number in range(24)]
        futures = [executor.submit(subprocess.check_call, ["sh", "-c", NOTE, file]) for file in files]
        for one in futures[:8]:
            assert one.result(60) == 0
        assert len({file.read_text() for file in files[:8]}) == 2
        cluster.remove_node(cluster.second, allow_graceful=False)
        assert [one.result(120) for one in futures] == [0] * 24
        assert len([file for file in files if len(file.read_text().split()) > 1]) <= 2
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_a_run_on_a_cluster_is_that_of_one_machine(cluster: Any, monkeypatch: Any, tmp_path: Path) -> None:
    """The ledger, and the journal from which --resume goes on, are on this machine."""
    from optest.cli.app import cli

    monkeypatch.setenv("OPTEST_HOME", str(tmp_path))
    command = ["run", "--op", "relu", "--op", "add", "--dtype", "float32", "--backend", "numpy", "--json"]
    found = {}
    for executor in ("process", "ray"):
        done = CliRunner().invoke(cli, [*command, "--executor", executor], standalone_mode=False)
        assert done.return_value == 0, done.output
        found[executor] = json.loads(done.output)["run"]["run_id"]
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ids = {name: {one.case_id for one in ledger.results(run)} for name, run in found.items()}
    assert ids["ray"] == ids["process"] != set()
    difference = ledger.diff(found["process"], found["ray"])
    assert (difference.newly_failing, difference.other, difference.accuracy) == ([], [], [])


def test_killing_cancels_what_has_no_result(cluster: Any) -> None:
    from optest.running.ray_executor import RayExecutor

    executor = RayExecutor(1)
    assert executor.submit(abs, -1).result(120) == 1
    futures = [executor.submit(time.sleep, 300) for _ in range(4)]
    executor.kill()
    for one in futures:
        with pytest.raises(CancelledError):
            one.result(0)


@pytest.mark.conformance
def test_a_driver_that_cannot_be_set_up_is_told(cluster: Any) -> None:
    from optest.running.ray_executor import RayExecutor

    executor = RayExecutor(1, start=no_device)
    with pytest.raises(BrokenExecutor) as broken:
        executor.submit(abs, -1).result(120)
    assert isinstance(broken.value.__cause__, BackendError)
    assert broken.value.__cause__.message == "no such device"
    with pytest.raises(BrokenExecutor):
        executor.submit(abs, -1)
    executor.kill()


@pytest.mark.conformance
def test_a_start_that_a_node_cannot_import_is_told(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor gives up, and does not try one new worker after the other."""
    from optest.running.ray_executor import RayExecutor

    only_here = types.ModuleType("only_here")
    exec("def start(replaces_crashed): pass", only_here.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    executor = RayExecutor(1, start=only_here.start)
    with pytest.raises(BrokenExecutor, match=r"cannot be imported on the node.*only_here"):
        executor.submit(abs, -1).result(120)
    executor.kill()
