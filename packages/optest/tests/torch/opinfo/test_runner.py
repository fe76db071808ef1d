"""The runner: the journal, resuming, and crashes that are narrowed down to one sample."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


from optest.core.case import BackendTarget
from optest.core.environment import describe_run
from optest.core.result import CaseResult, Status
from optest.running.executor import TaskTimedOut, WorkerDied
from optest.running.journal import Journal
from optest.running.runner import TestRunner
from optest.torch.device import TorchDevice
from optest.torch.opinfo.execution import Request, run_group
from optest.torch.opinfo.groups import Group
from optest.torch.opinfo.phases import planned

CONTROL = TorchDevice("cpu")
TARGET = BackendTarget("torch", "torch:cpu")
GROUPS = [Group("opinfo", name, "float32", "forward") for name in ("cumsum", "sign")]


class Kept:
    """A reporter that keeps all results."""

    name = "kept"

    def __init__(self) -> None:
        self.results: list[CaseResult] = []

    def on_start(self, run: Any, total: Any) -> None:
        pass

    def on_case_result(self, result: CaseResult) -> None:
        self.results.append(result)

    def on_complete(self, summary: Any) -> None:
        pass

    def discard(self) -> None:
        pass


class Here(Executor):
    """Runs groups in this process; those of ``deadly`` that include sample 2 fail with ``death``."""

    def __init__(self, deadly: str = "", death: Exception | None = None) -> None:
        self.deadly, self.death = deadly, death
        self.requests: list[Request] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        [request] = args
        self.requests.append(request)
        future: Future[Any] = Future()
        numbers = [one.number for one in planned(request.group, request.numbers)[: request.turn]]
        if request.group.entry == self.deadly and 2 in numbers:
            future.set_exception(self.death)
        else:
            future.set_result(run_group(CONTROL, request))
        return future


def run(
    executor: Here,
    journal: Path | None = None,
    groups: Sequence[Group] = GROUPS,
    samples: tuple[int, ...] | None = None,
    most: int | None = None,
    turn: int = 96,
    **more: Any,
) -> Any:
    kept = Kept()
    runner = TestRunner(
        CONTROL,
        [kept],  # type: ignore[list-item]
        executor=executor,
        journal=Journal(journal, resume=True) if journal else None,
        **more,
    )
    requests = [Request(one, TARGET, samples, most, turn) for one in groups]
    return runner.run(requests, describe_run(TARGET)), kept.results


@pytest.mark.parametrize(
    ("death", "status"),
    [
        (WorkerDied(None, "SIGSEGV", "stack"), Status.CRASHED),
        (TaskTimedOut(3.0, "stack"), Status.TIMED_OUT),
    ],
)
def test_a_death_costs_the_sample_that_caused_it(death: Exception, status: Status) -> None:
    summary, results = run(Here("cumsum", death))
    [dead] = [one for one in results if one.status is status]
    assert dead.origin.sample == 2
    assert dead.case_id == GROUPS[0].case_id(2)
    assert "--sample 2" in dead.rerun
    assert summary.ran == len({one.case_id for one in results}) > 4
    assert summary.failed == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("deadly", ["", "cumsum"])
def test_a_large_group_runs_in_turns(deadly: str, turn: int) -> None:
    """A timeout applies to a task, so only some cases of a large group should be at stake."""
    executor = Here(deadly, WorkerDied(None, "SIGSEGV", "stack"))
    _, results = run(executor, groups=GROUPS[:1], turn=turn)
    wanted = [one.number for one in planned(GROUPS[0])]
    assert sorted(one.origin.sample for one in results) == wanted == [0, 1, 2, 3]
    failed = [one.origin.sample for one in results if one.status.failed]
    assert failed == ([2] if deadly else [])
    asked = [one.numbers for one in executor.requests]
    assert asked[0] is None
    assert all(one is not None and len(one) <= turn for one in asked[1:])


def test_a_death_adds_no_cases_to_those_asked_for() -> None:
    _, results = run(Here("cumsum", WorkerDied(None, "SIGSEGV", "stack")), groups=GROUPS[:1], most=3)
    assert len(results) == 3


def test_a_resumed_run_asks_for_what_is_missing(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    stopped, first = run(Here("cumsum", WorkerDied(1, None, "")), journal, fail_fast=True)
    assert stopped.stopped
    assert journal.exists()
    executor = Here()
    summary, results = run(executor, journal)
    assert {one.case_id for one in results} >= {one.case_id for one in first if one.status is Status.PASSED}
    assert summary.failed + summary.resumed > 0
    assert summary.seconds["samples and eager"] > 0
    assert not journal.exists()


def test_a_group_goes_into_the_journal_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    [first, *rest] = run_group(CONTROL, Request(GROUPS[0], TARGET)).results
    journal.add("a", [first, *rest], {"running": 1.5})
    journal.close(complete=False)
    again = Journal(tmp_path / "journal.jsonl", resume=True)
    assert again.find("a") == ([first, *rest], {"running": 1.5})
    assert again.find("b") is None
    again.close(complete=True)


def test_one_sample_by_its_number() -> None:
    _, results = run(Here(), groups=GROUPS[:1], samples=(1,))
    assert [one.origin.sample for one in results] == [1]


class Flaky(Here):
    """Answers sample 1 of ``cumsum`` wrongly the first time; with ``always``, every time."""

    def __init__(self, *, always: bool = False) -> None:
        super().__init__()
        self.always, self.times = always, 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        outcome = future.result()
        for place, one in enumerate(outcome.results):
            if one.op == "cumsum" and one.origin.sample == 1:
                self.times += 1
                if self.always or self.times == 1:
                    outcome.results[place] = replace(one, status=Status.MISMATCH, reason="odd")
        return future


def test_only_the_samples_that_failed_are_tried_again() -> None:
    executor = Flaky()
    summary, results = run(executor, retries=2)
    [flaky] = [one for one in results if one.flaky]
    assert (flaky.origin.sample, flaky.attempts, flaky.status) == (1, 2, Status.PASSED)
    assert flaky.reason == "flaky: attempt 2 passed, the first did not (mismatch: odd)"
    assert "--sample 1" in flaky.rerun
    assert (summary.flaky, summary.failed) == (1, 0)
    assert [one.numbers for one in executor.requests] == [None, (1,), None] or [
        one.numbers for one in executor.requests
    ] == [None, None, (1,)]


def test_a_sample_that_keeps_failing_counts_its_attempts(tmp_path: Path) -> None:
    executor = Flaky(always=True)
    summary, results = run(executor, tmp_path / "journal.jsonl", retries=2)
    [failed] = [one for one in results if one.status.failed]
    assert (failed.attempts, failed.flaky, executor.times) == (3, False, 3)
    assert summary.ran == len({one.case_id for one in results})
