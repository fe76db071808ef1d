"""Coverage of optest's own operators requires every case of a full run of the suite."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optest.cli.app import cli
from optest.core.result import Status
from optest.coverage.evidence import collect
from optest.coverage.snapshot import take_snapshot
from optest.ledger import Ledger
from optest.operators import operator_registry

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("OPTEST_HOME", str(tmp_path))
    monkeypatch.delenv("OPTEST_LEDGER", raising=False)

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def operator(call: Call) -> dict[str, Any]:
    [found] = json.loads(call("coverage", "--json"))["operators"]
    assert isinstance(found, dict)
    return found


def test_one_small_case_is_not_the_operator(call: Call, tmp_path: Path) -> None:
    """Setups and dtypes count as missing, and are reported as such, until they have run."""
    for _ in range(2):
        call("run", "--op", "relu", "--dtype", "float32", "--shape", "2", "--backend", "stub")
    small = operator(call)
    cases = {one["dtype"]: one for one in small["results"]}
    assert (small["level"], cases["float32"]["total"]) == ("partial", 1)
    assert set(cases) == {types[0] for types in operator_registry.get("relu").dtypes}
    missing = cases["float32"]["missing"]
    assert missing == len(operator_registry.get("relu").setups)
    assert f"float32: {missing} of {missing + 1} cases have no result" in small["missing"]
    assert "float64: no result" in small["missing"]
    evidence = collect(Ledger(tmp_path / "ledger.sqlite"))
    assert any(one.startswith("1 of ") and "cases of relu are recorded" in one for one in evidence.warnings)
    for seed in ("0", "5"):  # cases of one setup count once, whatever their values
        call("run", "--suite", "builtin", "--op", "relu", "--backend", "stub", "--seed", seed)
    full = operator(call)
    assert not any("missing" in one for one in full["results"])
    assert full["criteria"]["kernel"] == full["criteria"]["dtypes"] == "met"


def test_operators_that_were_not_run_count_in_shares(call: Call, tmp_path: Path) -> None:
    for _ in range(2):
        call("run", "--suite", "builtin", "--op", "relu", "--backend", "stub")
    snapshot = take_snapshot(Ledger(tmp_path / "ledger.sqlite"))
    others = [one.name for one in operator_registry if one.setups and one.name != "relu"]
    assert sorted(snapshot.evidence.unrecorded) == sorted(others)
    assert snapshot.share <= 1 / (len(others) + 1)
    assert snapshot.evidence.warnings[-1].startswith(f"nothing is recorded of {len(others)} operators of the")
    items = [item for one in snapshot.progress.stages for item in one.items]
    shares = [text for item in items for text in item.detail if " operators; " in text and "float32" in text]
    assert shares
    assert not any("1 of 1 operators" in one for one in shares)


def test_other_suites_say_themselves_what_they_have(recorder: Any) -> None:
    """Entries of PyTorch's databases and unknown operators need no setups."""
    recorder.run([recorder.case("relu"), recorder.case("of a plugin that is not here", origin={})])
    evidence = collect(recorder.ledger)
    assert not evidence.unrecorded
    assert evidence.operators["relu"].everything().clean
    recorder.run([recorder.case("relu", sample=1, status=Status.MISMATCH)])
    assert not collect(recorder.ledger).everything().missing
