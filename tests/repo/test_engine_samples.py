"""The recorded operator samples on other engines: their bounds, and what counts as equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import engine_samples
import pytest
from engine_samples import RESULTS, record, section, summed_up

from optest.core.result import Status
from optest.ledger.reading import CaseRow

LEAST_EQUAL = {"iree": 0.85}
"""The share of entries that must be equal on an engine."""


def row(op: str, status: Status, reason: str = "") -> CaseRow:
    return CaseRow(0, "", op, "", "float32", "forward", status, reason, 0.0, False, "{}")


@pytest.mark.parametrize("engine", LEAST_EQUAL)
def test_most_entries_are_equal(engine: str) -> None:
    recorded = json.loads(RESULTS.read_text("utf-8"))[engine]
    assert recorded["entries"] > 600
    assert recorded["entries"] - len(recorded["unequal"]) >= LEAST_EQUAL[engine] * recorded["entries"]
    assert all(recorded["unequal"].values())


def test_an_entry_is_equal_if_all_of_its_samples_are() -> None:
    found = summed_up(
        [
            row("add", Status.PASSED),
            row("add", Status.PASSED),
            row("mul", Status.PASSED),
            row("mul", Status.ERROR, "EngineError: no\n  next: use another"),
            row("sin", Status.PASSED),
            row("sin", Status.SKIPPED, "untestable"),
            row("jit", Status.SKIPPED, "untestable"),
            row("tan", Status.CRASHED, "killed by SIGSEGV"),
        ]
    )
    assert found == {
        "entries": 4,
        "untestable": ["jit"],
        "unequal": {"mul": "EngineError: no", "tan": "killed by SIGSEGV"},
    }
    text = section("iree", {"versions": {"iree": "1"}, "dtype": "float32", **found})
    assert "2 of 4 entries are equal in float32 (50%)" in text
    assert "| `tan` | killed by SIGSEGV |" in text


def test_other_engines_stay_as_they_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def runs(self) -> list[Any]:
            return [type("Run", (), {"run_id": name}) for name in ("old", "new")]

        def cases(self, run: str) -> list[CaseRow]:
            return [row("add", Status.PASSED if run == "new" else Status.ERROR)]

        def close(self) -> None: ...

    monkeypatch.setattr(engine_samples, "Ledger", Kept)
    monkeypatch.setattr(engine_samples, "versions", dict)
    path = tmp_path / "samples.json"
    path.write_text('{"jax": {}}')
    record("iree", tmp_path / "ledger", path)
    found = json.loads(path.read_text())
    assert found["jax"] == {}
    assert (found["iree"]["entries"], found["iree"]["unequal"]) == (1, {})
