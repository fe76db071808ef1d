"""The record that ``tools/device_runs.py`` makes from a ledger, and the table that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from device_runs import RECORD, compiler_figures, folded, keep, read, section

from optest.core.result import CaseResult, RunInfo, Status
from optest.ledger import Ledger

NATIVE = {"kind": "torch", "name": "torch:pjrt", "chip": None}
OTHER = {"kind": "torch", "name": "torch:cpu", "chip": None}
PAGE = """\
# Coverage

| dtype | forward | out |
|---|---|---|
| float32 | 668/671 | 341/346 |
| float8\\_e5m2 | 3/3 |  |

| operators | why |
|---|---|
| imag/real | none |
"""


def run(number: int, backend: dict[str, Any]) -> RunInfo:
    return RunInfo(
        run_id=f"2026010{number}-000000-{number:06x}",
        started=f"2026-01-0{number}T00:00:00+00:00",
        version="0.1.0",
        command_line="optest run",
        backend=backend,
        environment={"torch": "2.13.0", "commit": "abc", "hostname": "somewhere"},
        seed=0,
    )


def result(case: str, op: str, status: Status, reason: str = "", phase: str = "forward") -> CaseResult:
    given: dict[str, Any] = {
        "case_id": case, "op": op, "category": "", "dtypes": ("float32",), "shapes": {}, "attributes": {},
        "phase": phase, "seed": 0, "backend": NATIVE, "status": status, "reason": reason,
    }  # fmt: skip
    return CaseResult(**given)


def test_the_newest_result_of_each_case_counts_and_a_fallback_is_not_right(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    ledger = Ledger(place)
    first = [
        result("a1", "add", Status.ERROR, "it\nbroke"),
        result("a2", "add", Status.PASSED),
        result("m1", "mul", Status.FALLBACK, "ran in eager PyTorch: aten.mul.Tensor"),
        result("d1", "div", Status.SKIPPED, "untestable"),
        result("o1", "add", Status.PASSED, phase="out"),
    ]
    ledger.add(run(1, NATIVE), first)
    ledger.add(run(2, NATIVE), [result("a1", "add", Status.PASSED)])
    ledger.add(run(3, OTHER), [result("a1", "add", Status.ERROR)])
    ledger.close()
    forward, out = sorted(folded([place]), key=lambda one: one["phase"])
    assert (forward["entries"], forward["right"], out["right"]) == (2, 1, 1)
    assert forward["cases"] == {"fallback": 1, "passed": 2, "skipped": 1}
    assert forward["not_right"] == {"mul": "fallback: ran in eager PyTorch: aten.mul.Tensor"}
    assert forward["versions"] == {"commit": ["abc"], "torch": ["2.13.0"]}

    record, page = tmp_path / "runs.json", tmp_path / "COVERAGE.md"
    page.write_text(PAGE)
    keep(record, [{**forward, "right": 0}])
    keep(record, [out, forward])
    assert [one["right"] for one in read(record)] == [1, 1]
    text = section(record, page)
    assert "| forward | float32 | 1/2 | 50.0 % | 3 | 668/671 |" in text
    assert "| out | float32 | 1/1 | 100.0 % | 1 | 341/346 |" in text
    assert "Not right: `mul` (forward fallback)." in text


def test_the_compiler_has_figures_by_phase_and_dtype() -> None:
    found = compiler_figures(PAGE)
    assert found == {
        ("forward", "float32"): "668/671",
        ("out", "float32"): "341/346",
        ("forward", "float8_e5m2"): "3/3",
    }


def test_the_record_holds_what_the_device_must_reach() -> None:
    shares = {(one["phase"], one["dtype"]): one["right"] / one["entries"] for one in read(RECORD)}
    assert shares["forward", "float32"] >= 0.98
    assert shares["backward", "float32"] >= 0.95
    assert all(shares.get((phase, "float32"), 1) >= 0.98 for phase in ("inplace", "out", "noncontiguous"))
