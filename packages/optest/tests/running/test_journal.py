from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.core.case import BackendTarget, TestCase
from optest.core.result import Status
from optest.core.tolerance import Tolerance
from optest.errors import EnvironmentError_
from optest.operators import operator_registry
from optest.plan.entries import Flags
from optest.plan.options import resolve
from optest.running.execution import record
from optest.running.journal import Journal
from optest.running.task import CaseTask
from optest.session import run_session


def case(size: int, **fields: Any) -> TestCase:
    given = {"tolerance": None, "seed": 0, "backend": BackendTarget("stub", "stub"), **fields}
    return TestCase(operator_registry.get("relu"), ("float32",), {"input0": (size,)}, {}, **given)


def key(one: TestCase) -> str:
    return CaseTask(one).key


def test_an_interrupted_run_is_found_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "j.jsonl"
    journal = Journal(file)
    results = [record(case(i), Status.MISMATCH, "é\nreason", rerun="again") for i in range(3)]
    for i, one in enumerate(results):
        journal.add(key(case(i)), [one], {})
    journal.close(complete=False)
    resumed = Journal(file, resume=True)
    assert [resumed.find(key(case(i))) for i in range(4)] == [*(([one], {}) for one in results), None]
    assert len(resumed) == 3
    resumed.add(key(case(3)), [record(case(3), Status.PASSED)], {})
    resumed.close(complete=True)
    assert not file.exists()


@pytest.mark.parametrize("rest", [b'{"key": "x', b'{"key": "x"}', b"\0\0\0\0", b"{}\n{}\n", b"[1]\n"])
def test_what_was_cut_off_is_dropped(tmp_path: Path, rest: bytes) -> None:
    file = tmp_path / "j.jsonl"
    journal = Journal(file)
    journal.add(key(case(1)), [record(case(1), Status.PASSED)], {})
    journal.close(complete=False)
    whole = file.read_bytes()
    file.write_bytes(whole + rest)
    resumed = Journal(file, resume=True)
    assert len(resumed) == 1
    resumed.add(key(case(2)), [record(case(2), Status.PASSED)], {})
    resumed.close(complete=False)
    assert file.read_bytes().startswith(whole + b'{"key"')
    assert Journal(file, resume=True).find(key(case(2))) is not None


def test_another_verdict_needs_another_run(tmp_path: Path) -> None:
    """The tolerance, the driver and its settings are not in a case's id, but they affect its result."""
    journal = Journal(tmp_path / "j.jsonl")
    journal.add(key(case(1)), [record(case(1), Status.PASSED)], {})
    journal.close(complete=False)
    resumed = Journal(tmp_path / "j.jsonl", resume=True)
    for changed in (
        replace(case(1), tolerance=Tolerance(0.1, 0.1)),
        replace(case(1), backend=BackendTarget("gpu", "cuda")),
        replace(case(1), backend_config={"command": {"env": {"X": "1"}}}),
    ):
        assert changed.id == case(1).id
        assert resumed.find(key(changed)) is None
    assert resumed.find(key(case(1))) is not None


def test_a_new_run_starts_anew(tmp_path: Path) -> None:
    for _ in range(2):
        journal = Journal(tmp_path / "j.jsonl")
        assert journal.find(key(case(1))) is None
        journal.add(key(case(1)), [record(case(1), Status.PASSED)], {})
        journal.close(complete=False)
    assert (tmp_path / "j.jsonl").read_text().count("\n") == 1


def test_resuming_mixes_no_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of another version of the tested software are not taken over."""
    monkeypatch.setenv("OPTEST_HOME", str(tmp_path))
    flags = Flags(ops=("relu",), dtypes=(("float32",),), shapes={"": [(2,), (3,)]})
    options = resolve(flags=flags, backend="stub", fail_fast=True, ledger="none", resume=True)

    def wrong(*_: Any) -> Any:
        return (np.float32([5]),)

    taken = []
    for commit, broken in (("a", True), ("a", True), ("b", True), ("b", False)):
        monkeypatch.setenv("OPTEST_COMMIT", commit)
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr("optest.backends.stub.StubDriver.run", wrong)
            taken.append(run_session(options, terminal=False).summary.resumed)
    assert taken == [0, 1, 0, 1]


def test_two_runs_at_once(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "j.jsonl"), Journal(tmp_path / "j.jsonl")
    first.add(key(case(1)), [record(case(1), Status.PASSED)], {})
    second.add(key(case(2)), [record(case(2), Status.PASSED)], {})
    assert second.path.name == f"j.{os.getpid()}.jsonl"
    with pytest.raises(EnvironmentError_, match="the run to resume is still going on"):
        Journal(tmp_path / "j.jsonl", resume=True).find(key(case(1)))
    second.close(complete=True)
    assert [one.name for one in tmp_path.iterdir()] == ["j.jsonl"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentError_, match=r"cannot be written: [^\n]*\n.*OPTEST_HOME"):
        Journal(tmp_path / "file" / "j.jsonl").find(key(case(1)))
