from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from optest.core.result import CaseResult, Status
from optest.errors import PlanError
from optest.plan.expectations import Expectations

Write = Callable[..., Path]
TODAY = datetime.date(2026, 6, 1)

RESULT = CaseResult(
    case_id="0123456789abcdef",
    op="relu",
    category="activation",
    dtypes=("float16",),
    shapes={"input0": (2,)},
    attributes={"dims": (0, 1)},
    phase="forward",
    seed=0,
    backend={"kind": "npu", "name": "n", "chip": None},
    status=Status.MISMATCH,
    reason="3 of 4 differ",
)

GAP = """
[[gap]]
operator = "re*"
dtype = "float16"
reason = "no denormals"
link = "https://tracker.example/1"
expires = 2026-12-31
"""


def load(file: Path) -> Expectations:
    return Expectations.load(file, today=TODAY)


@pytest.mark.parametrize(
    "status", [Status.MISMATCH, Status.ERROR, Status.CRASHED, Status.TIMED_OUT, Status.UNSUPPORTED]
)
def test_a_failure_inside_a_gap_is_expected(plan_file: Write, status: Status) -> None:
    judged = load(plan_file(GAP)).judge(replace(RESULT, status=status))
    assert judged.status is Status.XFAILED
    assert not judged.status.failed
    for part in ("no denormals", "https://tracker.example/1", status.value, "3 of 4 differ"):
        assert part in judged.reason


def test_a_pass_inside_a_gap_fails(plan_file: Write) -> None:
    file = plan_file(GAP)
    judged = load(file).judge(replace(RESULT, status=Status.PASSED))
    assert judged.status is Status.XPASSED
    assert judged.status.failed
    assert f"{file}:2" in judged.reason


def test_an_expired_gap_excuses_nothing(plan_file: Write) -> None:
    expectations = Expectations.load(plan_file(GAP), today=datetime.date(2027, 1, 1))
    judged = expectations.judge(RESULT)
    assert judged.status is Status.MISMATCH
    assert "expired on 2026-12-31" in judged.reason
    assert len(expectations.problems(complete=False)) == 1
    assert load(plan_file(GAP)).problems(complete=False) == []


@pytest.mark.parametrize(
    ("narrower", "met"),
    [
        ('dtype = "float16"', True),
        ('dtype = "float32"', False),
        ('phase = "backward"', False),
        ('cases = ["0123456789abcdef"]', True),
        ('cases = ["fedcba9876543210"]', False),
        ("attributes = {dims = [0, 1]}", True),
        ("attributes = {dims = [1]}", False),
    ],
)
def test_a_gap_covers_what_it_says(plan_file: Write, narrower: str, met: bool) -> None:
    file = plan_file(f'[[gap]]\noperator = "relu"\nreason = "r"\n{narrower}\n')
    assert (load(file).judge(RESULT).status is Status.XFAILED) == met


def test_skipped_and_unrelated_results_stay(plan_file: Write) -> None:
    expectations = load(plan_file(GAP))
    for result in (replace(RESULT, op="add"), replace(RESULT, status=Status.SKIPPED)):
        assert expectations.judge(result) == result


def test_a_gap_that_matches_nothing_fails_a_complete_run(plan_file: Write) -> None:
    file = plan_file(GAP + '[[gap]]\noperator = "add"\nreason = "none"\n')
    expectations = load(file)
    expectations.judge(RESULT)
    [problem] = expectations.problems(complete=True)
    assert problem.startswith(f"{file}:8: gap add: none matches no case")
    assert expectations.problems(complete=False) == []
    assert expectations.summary() == {
        "declared": 2,
        "cases": 1,
        "unexpected_passes": 0,
        "unmatched": 1,
        "expired": 0,
    }


@pytest.mark.parametrize(
    ("text", "line", "key", "told"),
    [
        ('[[gap]]\noperator = "relu"\n', 1, "gap.reason", "reason is missing"),
        ('[[gap]]\nreason = "r"\n', 1, "gap.operator", "operator is missing"),
        ('\n\n[[gap]]\noperator = "rleu"\nreason = "r"\n', 3, "gap.operator", "did you mean relu"),
        (
            '[[gap]]\noperator = "relu"\ndtype = "int99"\nreason = "r"\n',
            1,
            "gap.dtype",
            "float16, float32 and int8",
        ),
        ('[[gap]]\noperator = "relu"\nraeson = "r"\n', 1, "gap.raeson", "did you mean reason"),
        ('[[gap]]\noperator = "relu"\nreason = ""\n', 1, "gap.reason", "text"),
        ('[[gap]]\noperator = "relu"\nreason = "r"\nexpires = "soon"\n', 1, "gap.expires", "2027-01-31"),
        ('[[gap]]\noperator = "relu"\nreason = "r"\ncases = "x"\n', 1, "gap.cases", "a list of case ids"),
        ('[[gaps]]\noperator = "relu"\n', None, "gaps", "tables [[gap]]"),
        ("[[gap]\n", 1, "", "this is not TOML"),
        ("gap = 3\n", None, "gap", "tables [[gap]]"),
    ],
)
def test_a_mistake_is_placed(plan_file: Write, text: str, line: int | None, key: str, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        load(plan_file(text, "gaps.toml"))
    assert (caught.value.line, caught.value.key) == (line, key)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("shapes", "covered"),
    [
        ('{ input0 = "2" }', True),
        ('{ input0 = "*" }', True),
        ('{ input0 = "2,*" }', False),
        ('{ input1 = "*" }', False),
    ],
)
def test_shapes_narrow_a_gap(plan_file: Write, shapes: str, covered: bool) -> None:
    judged = load(plan_file(f"{GAP}shapes = {shapes}\n")).judge(RESULT)
    assert (judged.status is Status.XFAILED) is covered


def test_shapes_are_patterns(plan_file: Write) -> None:
    with pytest.raises(PlanError, match=r"gap.shapes: wrong value\n.*found: \[2\]\n.*a table such as"):
        load(plan_file(f"{GAP}shapes = [2]\n"))


def test_some_cases_of_a_partial_gap_pass(plan_file: Write) -> None:
    gaps = load(plan_file(f"{GAP}partial = true\n"))
    passed = replace(RESULT, status=Status.PASSED)
    assert gaps.judge(passed) == passed
    assert gaps.problems(complete=False) == []
    [problem] = gaps.problems(complete=True)
    assert problem.endswith("is partial, but all its cases pass: remove it")
    assert gaps.problems(complete=True, usual_values=False) == []
    assert gaps.judge(RESULT).status is Status.XFAILED
    assert gaps.problems(complete=True) == []
    assert gaps.summary()["unexpected_passes"] == 0


def test_every_case_of_a_gap_that_varies_may_pass(plan_file: Write) -> None:
    gaps = load(plan_file(f"{GAP}varies = true\n"))
    assert len(gaps.problems(complete=True)) == 1  # it matches nothing
    passed = replace(RESULT, status=Status.PASSED)
    assert gaps.judge(passed) == passed
    assert gaps.problems(complete=True) == []
    assert gaps.judge(RESULT).status is Status.XFAILED


@pytest.mark.parametrize("key", ["partial", "varies"])
def test_a_flag_is_a_bool(plan_file: Write, key: str) -> None:
    with pytest.raises(PlanError, match=rf"gap\.{key}: wrong value"):
        load(plan_file(f"{GAP}{key} = 'yes'\n"))
