from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes  # noqa: F401  # gives NumPy bfloat16
import numpy as np
import pytest

from optest.core.comparator import compare
from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import Summary
from optest.reporting import Reporter

RUN = RunInfo(
    run_id="20260101-000000-abcdef",
    started="2026-01-01T00:00:00+00:00",
    version="0.1.0",
    command_line="optest run --op 'a<b'",
    backend={"kind": "gpu", "name": "cuda-runtime", "chip": "a100"},
    environment={"python": "3.11", "platform": 'Linux "x" & <y>'},
)


def comparison(actual: Any, expected: Any, output: str = "output0") -> dict[str, Any]:
    return {"output": output, **compare(np.asarray(actual), np.asarray(expected)).to_dict()}


def result(status: Status = Status.PASSED, **fields: Any) -> CaseResult:
    given = {
        "case_id": "0123456789abcdef", "op": "relu", "category": "activation", "dtypes": ("float16",),
        "shapes": {"input0": (8, 2048)}, "attributes": {"alpha": 0.5, "mode": "up"},
        "phase": "forward", "seed": 7,
        "backend": RUN.backend, "status": status, "duration_s": 0.25,
    }  # fmt: skip
    return CaseResult(**{**given, **fields})


MISMATCH = result(
    Status.MISMATCH,
    reason="output0: 1 of 3 elements differ",
    comparisons=(comparison(np.float16([1, 2, np.inf]), np.float16([1, 3, 4])),),
    rerun="optest run --op relu --seed 7 --backend cuda-runtime",
)
CRASH = result(
    Status.CRASHED,
    case_id="f" * 16,
    op="conv<2d>",
    reason="the worker process was killed by SIGSEGV",
    signal="SIGSEGV",
    stderr_tail="line 1\n\x1b[31mline 2\x00 & <tag> [bold]",
    rerun="optest run --op 'conv<2d>'",
)
GAP = result(Status.XFAILED, case_id="a" * 16, reason="no bfloat16 accumulator (https://tracker.example/42)")
RESULTS = (result(), MISMATCH, CRASH, GAP)


def report(reporter: Reporter, results: Iterable[CaseResult] = RESULTS, **fields: Any) -> Summary:
    """Send the events of a run to ``reporter``."""
    results = list(results)
    summary = Summary(len(results), **fields)
    try:
        reporter.on_start(RUN, len(results))
        for one in results:
            summary.add(one)
            reporter.on_case_result(one)
        reporter.on_complete(summary)
    finally:
        reporter.discard()
    return summary


@pytest.fixture
def play() -> Callable[..., Summary]:
    return report


@pytest.fixture
def results() -> tuple[CaseResult, ...]:
    return RESULTS


@pytest.fixture
def run_info() -> RunInfo:
    return RUN


@pytest.fixture
def make_result() -> Callable[..., CaseResult]:
    return result


@pytest.fixture
def compared() -> Callable[..., dict[str, Any]]:
    return comparison
