"""The runner in this process and on other executors; tests/meta covers its own worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.backends import BackendDriver, ProgramFailed, Unsupported, backend_manager
from optest.core.case import BackendTarget, TestCase
from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import KEPT, Summary
from optest.core.tolerance import Tolerance
from optest.errors import BackendError, LedgerError
from optest.ledger import Ledger, LedgerReporter
from optest.operators import operator_registry
from optest.plan.rerun import rerun_command
from optest.reporting import Reporter
from optest.running.journal import Journal
from optest.running.runner import TestRunner


def case(size: int = 4, op: str = "relu", **fields: Any) -> TestCase:
    descriptor = operator_registry.get(op)
    given = {
        "descriptor": descriptor, "dtypes": ("float32",) * len(descriptor.inputs),
        "backend": BackendTarget("x", "x"),
        "shapes": dict.fromkeys(descriptor.inputs, (size,)), "attributes": descriptor.complete_attributes({}),
        "tolerance": None, "seed": 0,
    }  # fmt: skip
    return TestCase(**{**given, **fields})


class Driver(BackendDriver):
    """A driver that runs a test's function in this process."""

    kind = name = "x"
    isolated = False

    def __init__(self, run: Callable[..., Any]) -> None:
        self.calls: list[str] = []
        self._run = run

    def setup(self) -> None:
        self.calls.append("setup")

    def teardown(self) -> None:
        self.calls.append("teardown")

    def run(self, case: TestCase, inputs: Sequence[np.ndarray[Any, Any]]) -> Any:
        self.calls.append(case.op)
        return self._run(*inputs)


class Events(Reporter):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_start(self, run: RunInfo, total: int | None) -> None:
        self.events.append((run.backend["name"], total))

    def on_case_result(self, result: CaseResult) -> None:
        self.events.append(result)

    def on_complete(self, summary: Summary) -> None:
        self.events.append(summary)


def relu(x: np.ndarray[Any, Any]) -> Any:
    return (np.maximum(x, 0),)


def outcome(run: Callable[..., Any], **fields: Any) -> CaseResult:
    events = Events()
    TestRunner(Driver(run), [events]).run([case(**fields)])
    found = events.events[1]
    assert isinstance(found, CaseResult)
    return found


def test_events_come_in_order() -> None:
    driver, events = Driver(relu), Events()
    summary = TestRunner(driver, [events]).run(case(size) for size in (1, 2))
    first, one, two, last = events.events
    assert first == ("x", None)
    assert [one.status, two.status] == [Status.PASSED] * 2
    assert one.comparisons[0]["output"] == "output0"
    assert last is summary
    assert (summary.ran, summary.failed, summary.interrupted) == (2, 0, False)
    assert driver.calls == ["setup", "relu", "relu", "teardown"]


def leave() -> Any:
    raise SystemExit(3)


def fail(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (lambda x: (x * 0,), Status.MISMATCH, "output0: "),
        (
            lambda x: (np.maximum(x, 0).astype(np.float64),),
            Status.MISMATCH,
            "output0: dtype float64, expected",
        ),
        (lambda x: (np.maximum(x, 0)[:2],), Status.MISMATCH, "output0: shape [2], expected [4]"),
        (lambda x: np.maximum(x, 0), Status.PASSED, ""),
        (lambda x: (), Status.ERROR, "the driver returned 0 outputs; there must be 1: output0"),
        (lambda x: None, Status.ERROR, "the driver returned NoneType; it must return a tuple"),
        (lambda x: ([0.0],), Status.ERROR, "the driver returned list for output0"),
        (lambda x: fail(KeyError("k")), Status.ERROR, "KeyError: 'k'"),
        (lambda x: fail(ValueError()), Status.ERROR, "ValueError"),
        (lambda x: leave(), Status.ERROR, "SystemExit: 3"),
        (lambda x: fail(Unsupported("no such kernel")), Status.UNSUPPORTED, "no such kernel"),
        (
            lambda x: fail(ProgramFailed("exit code 42", exit_code=42, stderr_tail="e")),
            Status.ERROR,
            "exit code 42",
        ),
        (lambda x: fail(ProgramFailed("late", timed_out=True)), Status.TIMED_OUT, "late"),
        (lambda x: fail(ProgramFailed("died", signal="SIGSEGV")), Status.CRASHED, "died"),
    ],
)
def test_every_way_to_end(answer: Callable[..., Any], status: Status, reason: str) -> None:
    found = outcome(answer)
    assert found.status is status
    assert found.reason.startswith(reason)
    assert (found.rerun == "") == (status is Status.PASSED)


def test_a_failed_programs_exit_code_is_in_the_record() -> None:
    found = outcome(lambda x: fail(ProgramFailed("exit code 42", exit_code=42, stderr_tail="a\nb")))
    assert (found.exit_code, found.stderr_tail) == (42, "a\nb")


def test_whose_fault_it_is() -> None:
    found = outcome(relu, reference="operator:index")
    assert found.status is Status.ERROR
    assert found.reason.startswith("the reference operator:index raised TypeError")
    found = outcome(relu, generator="nowhere:Nothing")
    assert found.reason.startswith(
        "the generator nowhere:Nothing raised the generator 'nowhere:Nothing' cannot"
    )


def test_a_generator_may_know_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case is compared with the generator's outputs; wrong ones make only that case fail."""
    answers: dict[int, Any] = {
        1: lambda x: (x + 1,),
        2: lambda x: (np.ones(3, np.float16),),
        3: lambda x: (x, x),
        4: lambda x: (np.array(["text"] * 4),),
    }

    class Knows:
        def generate(self, case: TestCase, rng: np.random.Generator) -> Any:
            x = rng.normal(size=case.shapes["input0"]).astype(np.float32)
            return (x,), answers[case.seed](x)

    monkeypatch.setattr("optest.generators.Knows", Knows, raising=False)
    driver, events = Driver(lambda x: (x + 1,)), Events()
    TestRunner(driver, [events]).run(
        [case(generator="optest.generators:Knows", seed=seed) for seed in answers]
    )
    first, second, third, fourth = events.events[1:-1]
    assert first.status is Status.PASSED
    assert second.reason == "output0: shape [4], expected [3]; dtype float32, expected float16"
    assert third.reason.startswith("the comparison raised ValueError")
    assert fourth.reason.startswith("the comparison raised TypeError: cannot compare elements of dtype")


def test_the_time_is_the_drivers() -> None:
    def slow(x: np.ndarray[Any, Any]) -> Any:
        time.sleep(0.02)
        return relu(x)

    def slow_and_wrong(x: np.ndarray[Any, Any]) -> Any:
        slow(x)
        raise ValueError

    assert outcome(slow).duration_s >= 0.02
    assert outcome(slow_and_wrong).duration_s >= 0.02
    assert outcome(relu, reference="operator:index").duration_s == 0


def test_a_teardown_that_fails_costs_no_result() -> None:
    class Stuck(Driver):
        def teardown(self) -> None:
            raise OSError("busy")

    events = Events()
    summary = TestRunner(Stuck(relu), [events]).run([case()])
    assert (summary.ran, summary.failed) == (1, 0)
    assert summary.problems == ["teardown of the driver x: OSError: busy"]
    assert events.events[-1] is summary


def test_the_cases_own_tolerance_counts() -> None:
    def off(x: np.ndarray[Any, Any]) -> Any:
        return (np.maximum(x, 0) + np.float32(0.01),)

    assert outcome(off).status is Status.MISMATCH
    assert outcome(off, tolerance=Tolerance(0.0, 0.1)).status is Status.PASSED


def test_records_know_the_inputs_by_their_values() -> None:
    """This holds even if the driver fails or is wrong; another seed gives other inputs."""

    def fail(x: np.ndarray[Any, Any]) -> Any:
        raise OSError("no")

    right, wrong, failed = outcome(relu), outcome(lambda x: (x + 1,)), outcome(fail)
    assert len(right.inputs) == 8
    assert right.inputs == wrong.inputs == failed.inputs != outcome(relu, seed=1).inputs
    settings = {"x": {"board": 1, "timeout": 3}}
    first, same, other = (
        outcome(relu, backend_config={"x": {**settings["x"], **more}}).settings
        for more in ({}, {"timeout": 9}, {"board": 2})
    )
    assert first == same != other
    assert right.settings == ""


def test_the_same_inputs_on_every_run() -> None:
    seen: list[bytes] = []

    def look(x: np.ndarray[Any, Any]) -> Any:
        seen.append(x.tobytes())
        return relu(x)

    for seed in (0, 0, 1):
        outcome(look, seed=seed, size=64)
    assert seen[0] == seen[1] != seen[2]


def test_retries_and_judging_come_in_that_order(tmp_path: Path) -> None:
    answers = iter([RuntimeError("once"), None, RuntimeError("twice"), RuntimeError("thrice")])

    def sometimes(x: np.ndarray[Any, Any]) -> Any:
        error = next(answers)
        if error is not None:
            raise error
        return relu(x)

    events = Events()
    asked: list[Status] = []

    def judge(result: CaseResult) -> CaseResult:
        asked.append(result.status)
        return replace(result, status=Status.XFAILED) if result.status is Status.ERROR else result

    journal = Journal(tmp_path / "j")
    runner = TestRunner(Driver(sometimes), [events], retries=1, judge=judge, journal=journal)
    summary = runner.run([case(1), case(2)])
    _, flaky, gap, _ = events.events
    assert (flaky.status, flaky.flaky, flaky.attempts) == (Status.PASSED, True, 2)
    assert flaky.rerun == rerun_command(case(1))
    assert flaky.reason == "flaky: attempt 2 passed, the first did not (error: RuntimeError: once)"
    assert (gap.status, gap.attempts) == (Status.XFAILED, 2)
    assert asked == [Status.PASSED, Status.ERROR]
    assert (summary.failed, summary.flaky) == (0, 1)


def test_fail_fast_stops_at_a_failure_of_this_run(tmp_path: Path) -> None:
    """A failure that was taken over from the resumed run does not stop the run again."""

    def wrong_above_2(x: np.ndarray[Any, Any]) -> Any:
        return (np.maximum(x, 0) + np.float32(x.size > 2),)

    seen = []
    for resume in (False, True, True):
        journal = Journal(tmp_path / "j", resume=resume)
        runner = TestRunner(Driver(wrong_above_2), fail_fast=True, journal=journal)
        summary = runner.run([case(size) for size in (1, 3, 2, 4, 2, 1)])
        seen.append((summary.ran, summary.failed, summary.resumed, summary.stopped))
    assert seen == [(2, 1, 0, True), (4, 2, 2, True), (6, 2, 6, False)]


def test_ctrl_c_ends_with_what_ran() -> None:
    def interrupt(x: np.ndarray[Any, Any]) -> Any:
        if x.size == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return relu(x)

    driver, events = Driver(interrupt), Events()
    summary = TestRunner(driver, [events]).run([case(1), case(2), case(3)])
    assert (summary.interrupted, summary.ran, summary.total) == (True, 1, 3)
    assert events.events[-1] is summary
    assert driver.calls[-1] == "teardown"


def test_ctrl_c_while_a_result_is_reported_waits_for_it() -> None:
    class Interrupting(Reporter):
        seen = 0

        def on_case_result(self, result: CaseResult) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            self.seen += 1

    reporter = Interrupting()
    summary = TestRunner(Driver(relu), [reporter]).run([case(1), case(2)])
    assert (summary.interrupted, summary.ran) == (True, 1)
    assert reporter.seen == 1


def test_a_plan_that_breaks_off_is_reported_to_its_end() -> None:
    def cases() -> Any:
        yield case(1)
        raise LedgerError("gone")

    events = Events()
    with pytest.raises(LedgerError):
        TestRunner(Driver(relu), [events]).run(cases(), total=3)
    summary = events.events[-1]
    assert (summary.ran, summary.missing, summary.interrupted) == (1, 2, True)


@pytest.mark.parametrize("how", ["cancelled", "shut down"])
def test_an_executor_that_is_stopped_ends_the_run_not_the_cases(tmp_path: Path, how: str) -> None:
    """Cases without a result are missing, not failed; the run says so, and resuming runs them."""

    class Stopping(ThreadPoolExecutor):
        count = 0

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == 4 and how == "shut down":
                self.shutdown()
            future = super().submit(*args, **kwargs)
            if self.count >= 4:
                future.cancel()
            return future

    ledger, cases = Ledger(tmp_path / "ledger.sqlite"), [case(size) for size in range(1, 9)]
    driver = backend_manager.select("numpy")
    with Stopping(1) as executor:
        for _ in range(3):
            executor.submit(time.sleep, 0.2)
            executor.count = 0
        journal = Journal(tmp_path / "j")
        runner = TestRunner(driver, [LedgerReporter(ledger)], executor=executor, journal=journal)
        with pytest.raises(BackendError, match="the executor of the run was stopped while cases were left"):
            runner.run(cases)
    [run] = ledger.runs()
    found = list(ledger.results(run.run_id))
    assert {one.status for one in found} == {Status.PASSED}
    assert 0 < len(found) < 8
    told = f"interrupted: {len(found)} of 8 cases have a result"
    assert ledger.unfinished() == {run.run_id: told}
    journal = Journal(tmp_path / "j", resume=True)
    summary = TestRunner(driver, [LedgerReporter(ledger)], journal=journal).run(cases)
    assert (summary.ran, summary.resumed, summary.missing) == (8, len(found), 0)
    assert len(ledger.unfinished()) == 1


@pytest.mark.parametrize(
    "make",
    [ThreadPoolExecutor, partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn"))],
    ids=["threads", "processes"],
)
def test_other_executors(make: Callable[[int], Executor]) -> None:
    """Any ``concurrent.futures.Executor`` can run the cases."""
    events = Events()
    driver = backend_manager.select("numpy")
    with make(2) as executor:
        summary = TestRunner(driver, [events], executor=executor).run([case(i) for i in range(20)])
        assert executor.submit(abs, -1).result() == 1  # the run leaves the executor open
    assert summary.counts == {Status.PASSED: 20}


def test_a_backend_that_is_not_there() -> None:
    class Absent(Driver):
        def setup(self) -> None:
            raise OSError("no device")

    events = Events()
    with pytest.raises(BackendError, match="the driver 'x' could not be set up: OSError: no device"):
        TestRunner(Absent(relu), [events]).run([case()])
    assert events.events == []


def test_a_summary_counts_more_failures_than_it_keeps() -> None:
    summary = Summary()
    failure = outcome(lambda x: (x * 0,))
    for _ in range(KEPT + 5):
        summary.add(failure)
    assert (len(summary.failures), summary.failed) == (KEPT, KEPT + 5)
    assert summary.to_dict()["counts"]["mismatch"] == KEPT + 5
