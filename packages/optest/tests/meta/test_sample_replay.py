"""Samples of PyTorch's databases: replayed from the ledger, made small, and shown by a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optest.backends import backend_manager

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch, notes: Path) -> None:
    monkeypatch.setenv("OPTEST_PLUGINS", "wrong_calls")
    import wrong_calls

    if "wrong-calls" in {one.name for one in backend_manager.drivers()}:
        backend_manager.unregister("wrong-calls")  # other tests in this process count drivers
    assert wrong_calls.__file__


def failing(optest: Any, tmp_path: Path, entry: str) -> dict[str, Any]:
    """Return the record of the first sample that fails on the wrong driver."""
    words = (
        "run",
        "--suite",
        "opinfo",
        "--op",
        entry,
        "--dtype",
        "float32",
        "--phase",
        "forward",
        "--most",
        "3",
    )
    done = optest(*words, "--backend", "wrong-calls", "--report", "json:report.json")
    assert done.returncode == 1, done.stderr
    cases = json.loads((tmp_path / "report.json").read_text())["cases"]
    found = next(one for one in cases if one["status"] in ("mismatch", "crashed"))
    assert isinstance(found, dict)
    return found


@pytest.mark.conformance
def test_a_failing_sample_is_replayed(optest: Any, tmp_path: Path) -> None:
    case = failing(optest, tmp_path, "cumsum")
    assert case["origin"]["suite"] == "opinfo"
    again = optest("replay", case["case_id"], "--json")
    assert again.returncode == 1
    data = json.loads(again.stdout)
    assert (data["summary"]["ran"], data["summary"]["failures"]) == (1, [case["case_id"]])


@pytest.mark.conformance
def test_a_failing_sample_is_made_small(optest: Any, tmp_path: Path, run_script: Any) -> None:
    """The driver is wrong if a value is above 1; one such element is left."""
    case = failing(optest, tmp_path, "cumsum")
    done = optest("replay", case["case_id"], "--script", "small.py")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout.removeprefix("small.py: cumsum float32 forward "))) == {1}
    shown = run_script(tmp_path / "small.py")
    assert shown.returncode == 1, shown.stderr
    assert "mismatch" in shown.stdout


@pytest.mark.conformance
def test_a_sample_that_ends_its_process_is_made_small_too(
    optest: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_CALLS", "die")
    case = failing(optest, tmp_path, "sign")
    assert case["status"] == "crashed"
    done = optest("replay", case["case_id"], "--script", "small.py")
    assert done.returncode == 0, done.stderr
    assert "Crashes this process" in (tmp_path / "small.py").read_text()


@pytest.mark.conformance
def test_a_sample_that_passes_is_not_made_small(optest: Any, tmp_path: Path) -> None:
    case = failing(optest, tmp_path, "cumsum")
    done = optest("replay", case["case_id"], "--script", "small.py", "--backend", "torch:cpu")
    assert done.returncode == 2
    assert "does not fail on torch:cpu" in done.stderr
    assert not (tmp_path / "small.py").exists()


@pytest.mark.conformance
def test_flags_of_optest_s_own_operators_mean_nothing_here(optest: Any, tmp_path: Path) -> None:
    case = failing(optest, tmp_path, "cumsum")
    done = optest("replay", case["case_id"], "--rtol", "1")
    assert done.returncode == 2
    assert "--rtol is for optest's own operators" in done.stderr
