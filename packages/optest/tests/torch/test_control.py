"""Plain PyTorch on the CPU is the control: the built-in suite passes on it, but for its declared gaps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest

from optest.backends import BackendDriver, backend_manager
from optest.core.case import BackendTarget, TestCase
from optest.core.result import CaseResult, Status
from optest.operators import operator_registry
from optest.plan.expectations import Expectations
from optest.plan.loader import load
from optest.plan.options import resolve
from optest.running.execution import run_case

EXPECTED = {Status.PASSED, Status.XFAILED}


@pytest.fixture(scope="module")
def driver() -> BackendDriver:
    pytest.importorskip("torch")
    found = backend_manager.select("torch:cpu")
    found.setup()
    return found


@pytest.fixture(scope="module")
def gaps(driver: BackendDriver) -> Expectations:
    assert driver.expectations is not None
    return Expectations.load(driver.expectations)


@pytest.fixture(scope="module")
def cases() -> dict[str, list[TestCase]]:
    """All cases of the built-in suite, by operator."""
    found: dict[str, list[TestCase]] = {}
    for case in load(resolve(suite="builtin"), BackendTarget("torch", "torch:cpu")):
        found.setdefault(case.op, []).append(case)
    return found


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():  # PyTorch warns of degrees of freedom, 'mean' in kl_div and the like
        warnings.simplefilter("ignore")
        yield


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", operator_registry.names())
def test_every_case_passes_or_is_a_declared_gap(
    op: str, driver: BackendDriver, gaps: Expectations, cases: dict[str, list[TestCase]]
) -> None:
    results = [gaps.judge(run_case(driver, case)) for case in cases[op]]
    assert len(results) >= 8 * len(operator_registry.get(op).dtypes)
    wrong = [
        line(case, one) for case, one in zip(cases[op], results, strict=True) if one.status not in EXPECTED
    ]
    assert not wrong, "\n".join(wrong)


def line(case: TestCase, result: CaseResult) -> str:
    return f"{case.describe()}: {result.status}: {result.reason}"


def test_the_declared_gaps_are_all_met(driver: BackendDriver, cases: dict[str, list[TestCase]]) -> None:
    """Run the cases of these operators again, because this process may have run only some cases above."""
    assert driver.expectations is not None
    gaps = Expectations.load(driver.expectations)
    for op in cases:
        if any(fnmatchcase(op, gap.operator) for gap in gaps.gaps):
            for case in cases[op]:
                gaps.judge(run_case(driver, case))
    assert gaps.problems(complete=True) == []
    assert gaps.summary()["unexpected_passes"] == 0
