from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optest.core.origin import Declared
from optest.core.result import CaseResult, Status
from optest.core.summary import Summary
from optest.coverage import collect, judge_operators
from optest.coverage.criteria import Rules
from optest.coverage.operators import Exclusion, Level, OperatorCoverage
from optest.errors import LedgerError, UsageError
from optest.ledger import Ledger


def verdict(recorder: Any, exclusions: tuple[Exclusion, ...] = ()) -> OperatorCoverage:
    [found] = judge_operators(collect(recorder.ledger), Rules(), exclusions)
    return found


def without(
    cases: list[CaseResult], dtype: str, phase: str, status: Status, reason: str = ""
) -> list[CaseResult]:
    """Return ``cases``, with ``status`` for the one that has this dtype and phase."""
    chosen = [one for one in cases if one.dtypes == (dtype,) and one.phase == phase]
    assert len(chosen) == 1
    return [replace(one, status=status, reason=reason) if one in chosen else one for one in cases]


def test_an_operator_with_nothing_missing_is_fully_covered(recorder: Any) -> None:
    for _ in range(2):
        recorder.run(recorder.operator("add"))
    found = verdict(recorder)
    assert found.level is Level.FULL
    assert found.missing == ()
    assert [one.criterion for one in found.findings] == [
        "kernel",
        "dtypes",
        "autograd",
        "edges",
        "reliability",
    ]


@pytest.mark.parametrize(
    ("dtype", "phase", "status", "missing"),
    [
        ("float64", "forward", Status.MISMATCH, "float64: 1 of 1 do not pass (too large)"),
        ("float32", "forward", Status.FALLBACK, "float32: 1 of 1 do not pass (too large)"),
        ("float64", "backward", Status.CRASHED, "backward float64: 1 of 1 do not pass (too large)"),
        ("float32", "noncontiguous", Status.ERROR, "noncontiguous: 1 of 2 do not pass (too large)"),
        ("float32", "errors", Status.XFAILED, "errors: 1 of 2 do not pass (too large)"),
    ],
)
def test_each_failure_breaks_its_criterion(
    recorder: Any, dtype: str, phase: str, status: Status, missing: str
) -> None:
    for _ in range(2):
        recorder.run(without(recorder.operator("add"), dtype, phase, status, "too large"))
    found = verdict(recorder)
    assert found.level is Level.PARTIAL
    assert found.missing == (missing,)


def test_what_was_not_run_is_missing_not_forgiven(recorder: Any) -> None:
    """The suite records what PyTorch supports, so a run of one dtype does not reduce what is required."""
    cases = [
        one for one in recorder.operator("add") if one.dtypes == ("float32",) and one.phase != "backward"
    ]
    for _ in range(2):
        recorder.run(cases)
    assert verdict(recorder).missing == (
        "float64: no result",
        "backward float32: no result",
        "backward float64: no result",
    )


def test_an_operator_without_gradients_needs_none(recorder: Any) -> None:
    for _ in range(2):
        recorder.run(recorder.operator("argmax", "float32 int64", gradients=""))
    found = verdict(recorder)
    assert found.level is Level.FULL
    assert found.to_dict()["criteria"]["autograd"] == "not applicable"


def test_an_operator_of_minor_dtypes_only_needs_those(recorder: Any) -> None:
    for _ in range(2):
        recorder.run(
            without(recorder.operator("view_as_real", "complex64"), "complex64", "forward", Status.ERROR)
        )
    assert verdict(recorder).missing[:2] == (
        "forward: 1 of 1 do not pass (error)",
        "complex64: 1 of 1 do not pass (error)",
    )


def test_edge_cases_are_asked_for_and_empty_shapes_are_some(recorder: Any) -> None:
    bare = recorder.case("relu")
    for _ in range(2):
        recorder.run([bare])
    assert verdict(recorder).missing == ("no edge case is recorded",)
    for _ in range(2):
        recorder.run([bare, recorder.case("relu", sample=1, shapes={"input": (0, 3)})])
    assert verdict(recorder).level is Level.FULL


def test_one_run_is_not_reliable_and_neither_is_one_that_flips(recorder: Any) -> None:
    cases = recorder.operator("add", "float32")
    recorder.run(cases)
    assert verdict(recorder).missing == ("4 cases are recorded in fewer than 2 runs",)
    recorder.run(without(cases, "float32", "noncontiguous", Status.MISMATCH))
    recorder.run(cases)
    assert verdict(recorder).missing == ("1 cases do not end alike in the last 2 runs",)
    recorder.run(cases)
    assert verdict(recorder).level is Level.FULL
    recorder.run([replace(one, flaky=one.phase == "noncontiguous") for one in cases])
    assert verdict(recorder).missing == ("1 cases do not end alike in the last 2 runs",)


def test_what_a_resumed_run_took_over_is_one_execution(recorder: Any) -> None:
    cases = recorder.operator("add", "float32")
    recorder.run(cases[:2], ended=None)
    recorder.run(cases[:3], ended=Summary(interrupted=True))
    recorder.run(cases)
    assert verdict(recorder).missing == ("4 cases are recorded in fewer than 2 runs",)
    recorder.run(cases)
    assert verdict(recorder).level is Level.FULL
    recorder.run(without(cases, "float32", "forward", Status.ERROR)[:1], ended=None)
    assert "1 cases do not end alike in the last 2 runs" in verdict(recorder).missing


def test_what_is_skipped_throughout_meets_no_criterion(recorder: Any) -> None:
    """Gradients do not apply if eager PyTorch has none, but some edge case must run."""

    def skipped(phase: str) -> list[CaseResult]:
        return [
            replace(one, status=Status.SKIPPED, reason="eager PyTorch raises") if one.phase == phase else one
            for one in recorder.operator("normal", "float32")
        ]

    for _ in range(2):
        recorder.run(skipped("backward"))
    assert verdict(recorder).to_dict()["criteria"]["autograd"] == "not applicable"
    edges = [
        replace(one, status=Status.SKIPPED) if one.phase == "errors" else one
        for one in skipped("noncontiguous")
    ]
    for _ in range(2):
        recorder.run(edges)
    assert verdict(recorder).missing == ("no edge case runs: all are skipped",)


def test_an_edge_case_of_a_dtype_that_is_not_there_is_none(recorder: Any) -> None:
    """Edge cases of a minor dtype that is unsupported count only after another case of the dtype passes."""
    empty = recorder.case("add", "complex32", sample=1, shapes={"input": (0,)}, status=Status.UNSUPPORTED)
    for _ in range(2):
        recorder.run([*recorder.operator("add"), empty])
    assert verdict(recorder).level is Level.FULL
    for _ in range(2):
        recorder.run([recorder.case("add", "complex32")])
    assert verdict(recorder).missing == ("empty, 0-d and size-1 inputs: 1 of 1 do not pass (unsupported)",)


def test_a_run_of_few_operators_is_told(recorder: Any) -> None:
    """Shares cover recorded operators only, and those may be just the ones that pass."""
    recorder.run([recorder.case("add", origin={"declared": Declared(entries=2)})])
    [warning] = collect(recorder.ledger).warnings
    assert warning == "1 operators are recorded; the suite has 2, and the others are not counted"
    recorder.run([recorder.case("mul")])
    assert collect(recorder.ledger).warnings == ()


@pytest.mark.parametrize("suite", ["module", "optim", "python_ref", "hop"])
def test_what_is_made_of_operators_is_none(recorder: Any, suite: str) -> None:
    recorder.run([recorder.case("add"), recorder.case("nn_Linear", origin={"suite": suite})])
    assert set(collect(recorder.ledger).operators) == {"add"}


def test_results_by_dtype_phase_and_overload(recorder: Any) -> None:
    """Tallies include errors next to eager's, how cases ran, and how many samples the suite has."""
    accuracy = {"ulp_error": 0.5, "control_ulp_error": 1.5}
    compared = {
        "output": "output0", "passed": True, "count": 1, "mismatches": 0, "max_abs": 0.0, "max_rel": 0.0,
        "max_ulp": 1.0, "accuracy": accuracy,
    }  # fmt: skip
    origin = {"form": "composite", "overloads": ("aten.gelu.default",), "among": 9}
    summary = Summary(seconds={"capture": 2.0, "running": 1.0})
    recorder.run(
        [
            recorder.case("gelu", origin=origin, comparisons=(compared,)),
            recorder.case("gelu", sample=1, status=Status.UNSUPPORTED, reason="no"),
            recorder.case("gelu", "int64", status=Status.SKIPPED, reason="eager PyTorch raises"),
        ],
        ended=summary,
    )
    found = collect(recorder.ledger)
    assert found.operators["gelu"].tallies["forward", "float32"].to_dict() == {
        "passed": 1, "applicable": 2, "total": 2, "samples": 9, "reason": "no",
        "classes": {"composite": 1, "unsupported": 1}, "ulp": 0.5, "eager_ulp": 1.5,
    }  # fmt: skip
    assert found.operators["gelu"].tallies["forward", "int64"].classes == {"untestable": 1}
    [overload] = found.overloads.values()
    assert (overload.name, overload.operators) == ("aten.gelu.default", {"gelu"})
    assert overload.tallies["forward", "float32"].passed == 1
    assert found.seconds == {"capture": 2.0, "running": 1.0}


def test_not_yet_and_intentionally_not(recorder: Any) -> None:
    declined = recorder.case("eig", status=Status.UNSUPPORTED, reason="no lowering")
    recorder.run([declined])
    assert verdict(recorder).level is Level.NONE
    excluded = verdict(recorder, (Exclusion("ei*", "complex results"),))
    assert (excluded.level, excluded.reason) == (Level.UNSUPPORTED, "complex results")
    recorder.run([replace(declined, status=Status.SKIPPED, reason="CUDA only")])
    assert (verdict(recorder).level, verdict(recorder).reason) == (Level.UNSUPPORTED, "CUDA only")


def test_what_passes_is_excluded_by_nobody(recorder: Any) -> None:
    recorder.run(recorder.operator("add"))
    assert verdict(recorder, (Exclusion("*", "no"),)).level is Level.PARTIAL


def test_shards_are_one_and_the_newest_record_counts(recorder: Any) -> None:
    cases = recorder.operator("add")
    for part in (cases[::2], cases[1::2], cases[::2], cases[1::2]):
        recorder.run(part)
    assert verdict(recorder).level is Level.FULL
    recorder.run(without(cases[:1], "float32", "forward", Status.MISMATCH))
    assert verdict(recorder).level is not Level.FULL


def test_backends_are_apart_and_versions_are_told(recorder: Any) -> None:
    first = recorder.run([recorder.case("add")])
    recorder.run([recorder.case("mul")], version="0.2.0", environment={"python": "3.11", "torch": "2.14"})
    recorder.run([recorder.case("sub")], backend={"kind": "torch", "name": "torch:cpu", "chip": None})
    assert set(collect(recorder.ledger).operators) == {"sub"}
    both = collect(recorder.ledger, backend="torchstone")
    assert set(both.operators) == {"add", "mul"}
    assert both.warnings == (
        "the runs were recorded with different versions of optest: 0.1.0 and 0.2.0",
        "the runs were recorded with different versions of torch: 2.13 and 2.14",
    )
    assert recorder.ledger.diff(first, "20260101-000002").warnings == both.warnings
    assert collect(recorder.ledger, runs=[first]).warnings == ()
    with pytest.raises(UsageError, match="there are runs of torch:cpu and torchstone"):
        collect(recorder.ledger, backend="none")


def test_targets_of_one_driver_are_apart(recorder: Any) -> None:
    """Targets differ by chip and configuration; a name that fits several targets is an error."""

    def run(op: str, chip: str | None, config: str | None = None) -> str:
        backend = {"kind": "npu", "name": "ascend", "chip": chip, "config": config}
        found: str = recorder.run([recorder.case(op)], backend=backend)
        return found

    first, second = run("add", "910b"), run("mul", "310p")
    newest = collect(recorder.ledger)
    assert (newest.backend, set(newest.operators)) == ("ascend (310p)", {"mul"})
    assert newest.warnings == ("runs of ascend (910b) are not counted",)
    with pytest.raises(UsageError, match=r"2 backends .* 'ascend': ascend \(310p\) and ascend \(910b\)"):
        collect(recorder.ledger, backend="ascend")
    chosen = collect(recorder.ledger, backend="ascend (910b)")
    assert (set(chosen.operators), chosen.warnings) == ({"add"}, ())
    run("sub", "910b", "firmware 2")
    assert set(collect(recorder.ledger, backend="ascend (910b)").operators) == {"add"}
    assert set(collect(recorder.ledger, backend="ascend (910b, firmware 2)").operators) == {"sub"}
    told = "the runs are of different backends: ascend (910b) and ascend (310p)"
    assert recorder.ledger.diff(first, second).warnings == (told,)
    [entry] = recorder.ledger.history("sub", backend="ascend")
    assert entry["backend"] == "ascend (910b, firmware 2)"
    run("add", None)
    plain = collect(recorder.ledger, backend="ascend")
    assert set(plain.operators) == {"add"}
    assert len(plain.warnings) == 1


def test_records_of_something_else_are_no_repetition(recorder: Any) -> None:
    """Records of a case with other inputs, or with other settings of the driver, do not count."""
    for fields in ({"inputs": "a"}, {"inputs": "b"}, {"inputs": "b", "settings": "1"}):
        recorder.run([recorder.case("add", **fields), recorder.case("mul")])
    evidence = collect(recorder.ledger, repeats=3)
    assert evidence.operators["mul"].everything().seldom == 0
    assert evidence.operators["add"].everything().seldom == 1
    assert evidence.warnings == (
        (
            "1 cases were recorded earlier with other inputs, or other settings of the driver; "
            "those records are not counted"
        ),
    )


def test_targets_stay_apart_in_a_merged_ledger(recorder: Any, tmp_path: Path) -> None:
    for config in ("firmware 1", "firmware 2"):
        other = type(recorder)(Ledger(tmp_path / f"{config}.sqlite"))
        backend = {"kind": "npu", "name": "x", "chip": None, "config": config}
        other.run([other.case("add")], backend=backend, run_id=config.replace(" ", "-"))
        recorder.ledger.merge(other.ledger)
    assert [one.target for one in recorder.ledger.runs()] == ["x (firmware 1)", "x (firmware 2)"]
    assert recorder.ledger.find_case(recorder.case("add").case_id).backend["config"] == "firmware 2"


def test_an_empty_ledger_and_a_newer_one(recorder: Any) -> None:
    with pytest.raises(UsageError, match="has no run"):
        collect(recorder.ledger)
    import sqlite3

    with sqlite3.connect(recorder.ledger.place) as database:
        database.execute("update optest_schema set version = 99")
    with pytest.raises(LedgerError, match="has version 99; this optest knows versions up to"):
        Ledger(recorder.ledger.place)
