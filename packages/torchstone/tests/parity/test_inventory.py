"""The recorded inventory: it is complete, all of it runs, and running an entry again confirms it.

``make test`` runs one entry of a third of the families, ``make conformance`` all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stratified import stratified

from torchstone.parity import inventory
from torchstone.parity.inventory import Entry, results
from torchstone.parity.inventory.calls import CALLS, Call, Operator

RECORDED = results.recorded()
KINDS = {"operators": inventory.operators(), "models": inventory.models()}
MEASURED = ("status", "composites", "backward", "dtypes", "batch")
"""Columns that must be the same when an entry runs again; reasons may contain measured figures."""


def recorded_row(kind: str, entry: Entry) -> dict[str, Any]:
    (row,) = [r for r in RECORDED[kind] if (r["family"], r["name"]) == (entry.family, entry.name)]
    return row  # type: ignore[no-any-return]


def one_of_some_families() -> list[Any]:
    """Return one entry of every sixth family: the middle one, which is rarely the simplest."""
    chosen = []
    families = [(kind, family) for kind, entries in KINDS.items() for family in families_of(entries)]
    for kind, family in stratified(families, 6, name="-".join, stratum=lambda one: one[0]):
        members = [entry for entry in KINDS[kind] if entry.family == family]
        entry = members[len(members) // 2]
        chosen.append(pytest.param(kind, [entry], id=f"{kind}-{family}-{entry.name}"))
    return chosen


def families_of(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.family for entry in entries))


def every_family() -> list[Any]:
    return [
        pytest.param(kind, [entry for entry in entries if entry.family == family], id=f"{kind}-{family}")
        for kind, entries in KINDS.items()
        for family in dict.fromkeys(entry.family for entry in entries)
    ]


def agree_with_the_record(kind: str, entries: Sequence[Entry]) -> None:
    rows = results.run(kind, entries)
    assert len(rows) == len(entries)
    for row, entry in zip(rows, entries, strict=True):
        before = recorded_row(kind, entry)
        now = {name: row.get(name) for name in MEASURED}
        assert now == {name: before.get(name) for name in MEASURED}, row["reason"]


def test_the_record_is_of_the_inventory() -> None:
    for kind, count in (("operators", 280), ("models", 162)):
        listed = [(entry.family, entry.name) for entry in KINDS[kind]]
        assert [(row["family"], row["name"]) for row in RECORDED[kind]] == listed
        assert len(listed) == count
    assert RECORDED["summary"] == results.summary(RECORDED)
    assert RECORDED["commit"]
    assert {"python", "torch", "jaxlib", "torchstone"} <= RECORDED["versions"].keys()


def test_the_record_is_of_these_calls() -> None:
    for row in RECORDED["operators"]:
        assert row["calls"] == [call.text for call in CALLS[row["family"], row["name"]].calls], row["name"]


def test_everything_runs_and_has_its_gradients() -> None:
    rows = [*RECORDED["operators"], *RECORDED["models"]]
    assert [row["name"] for row in rows if row["status"] not in results.RUNS] == []
    assert [row["name"] for row in rows if row["backward"] not in ("equal", "none")] == []
    assert [row["name"] for row in RECORDED["operators"] if not row["dtypes"]] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "entries"), one_of_some_families())
def test_a_sample_agrees_with_the_record(kind: str, entries: list[Entry]) -> None:
    agree_with_the_record(kind, entries)


@pytest.mark.conformance
@pytest.mark.parametrize(("kind", "entries"), every_family())
def test_everything_agrees_with_the_record(kind: str, entries: list[Entry]) -> None:
    agree_with_the_record(kind, entries)


def run_call(monkeypatch: pytest.MonkeyPatch, text: str, eager: str) -> dict[str, Any]:
    monkeypatch.setitem(CALLS, ("made up", "one"), Operator([Call(text, eager=eager)]))
    (row,) = results.run("operators", [Entry("made up", "one")])
    return row


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = run_call(monkeypatch, "torch.sin(x)", "torch.cos(x)")
    assert (row["status"], row["backward"], row["dtypes"]) == ("differs", "differs", [])
    assert "float32: torch.sin(x): " in row["reason"]
    assert "gradient of torch.sin(x) in float32: " in row["reason"]


def test_a_call_that_does_not_lower_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = run_call(monkeypatch, "x * (x.sum() > 0).item()", "x + 1")
    assert (row["status"], row["dtypes"]) == ("missing", [])
    assert "UnsupportedOperators" in row["reason"] or "CaptureError" in row["reason"]


def test_one_wrong_dtype_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    row = run_call(monkeypatch, "torch.neg(x)", "torch.neg(x) if dtype != torch.int8 else x")
    assert row["status"] == "lowered"
    assert "int8" not in row["dtypes"]
    assert {"int16", "float32", "complex64"} <= set(row["dtypes"])
    assert row["reason"].startswith("int8: torch.neg(x): ")


def test_an_interrupted_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def pretend(kind: str, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        if len(asked) == 3:
            asked.append("interrupted")
            raise KeyboardInterrupt
        asked.append(f"{kind} {entries[0].family} {entries[0].name}")
        return [
            {"family": e.family, "name": e.name, "status": "lowered", "backward": "none", "batch": []}
            for e in entries
        ]

    monkeypatch.setattr(results, "run", pretend)
    path, stages = tmp_path / "found.json", list[str]()
    with pytest.raises(KeyboardInterrupt):
        results.record(path)
    assert not path.exists()
    found = results.record(path, stages.append)
    assert stages[0].startswith("4 of "), stages[0]
    names = [name for name in asked if name != "interrupted"]
    assert len(names) == len(set(names))
    assert json.loads(path.read_text()) == found
    assert found["summary"]["operators"]["total"] == 280
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_of_other_sources_is_not_taken_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    journal = tmp_path / ".found.json.journal"
    journal.write_text('{"commit": "another", "versions": {}}\n{"kind": "operators", "row"')
    stages: list[str] = []

    def stop(kind: str, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        results.record(path, stages.append)
    assert stages[0].startswith("1 of ")
    assert "another" not in journal.read_text()
