"""Groups through worker processes to reporters, ledger and journal; a crash costs the sample that caused it.

Not here: what a group does in its process (``execution``).
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...backends.driver import BackendDriver
from ...core.case import BackendTarget
from ...core.interrupt import is_ctrl_c, watched
from ...core.result import CaseResult, RunInfo, Status
from ...core.summary import Summary
from ...errors import BackendError, told
from ...reporting.manager import Reporter, ReportManager
from ...running.execution import DriverHandle, start_worker, tail
from ...running.executor import DEFAULT_TIMEOUT_S, IsolatedExecutor, TaskTimedOut, WorkerDied
from ...running.journal import Journal
from .execution import GroupOutcome, Request, add, record, run_in_worker
from .groups import Group
from .phases import planned

_AHEAD = 2
"""Tasks per worker that are submitted and have no result."""
_TURN = 96
"""Cases of a task at most: a task has one timeout, and what it did is lost where it dies."""


@dataclass
class SuiteRunner:
    """Runs groups on one driver, as tasks of up to 96 cases, each in one of ``workers`` processes.

    A task of more than ``timeout`` seconds, or that kills its process, is halved until the
    sample that does it is alone. Other arguments are those of ``optest.running.runner.TestRunner``;
    ``most`` bounds how many samples of a group run, ``samples`` says which.
    """

    driver: BackendDriver
    reporters: Sequence[Reporter] = ()
    workers: int = 1
    timeout: float | None = None
    fail_fast: bool = False
    judge: Callable[[CaseResult], CaseResult] | None = None
    journal: Journal | None = None
    executor: Executor | None = None
    most: int | None = None
    samples: tuple[int, ...] = ()

    def run(self, groups: Sequence[Group], info: RunInfo, target: BackendTarget) -> Summary:
        """Run ``groups``; Ctrl-C ends the run with a summary of what ran, marked ``interrupted``."""
        summary = Summary()
        started = time.perf_counter()
        complete = False
        handle = DriverHandle(self.driver)
        executor = self.executor or IsolatedExecutor(
            self.workers, timeout=self.timeout or DEFAULT_TIMEOUT_S, start=partial(start_worker, handle)
        )
        requests = [Request(one, target, self.samples or None, self.most, _TURN) for one in groups]
        with ReportManager(self.reporters, summary) as reports:
            try:
                reports.on_start(info, None)
                with watched():
                    for result, fresh in self._results(executor, handle, requests, summary):
                        judged = self.judge(result) if self.judge else result
                        summary.add(judged)
                        reports.on_case_result(judged)
                        if self.fail_fast and fresh and judged.status.failed:
                            summary.stopped = True
                            break
                complete = not summary.stopped
            except KeyboardInterrupt:
                summary.interrupted = True
            finally:
                if isinstance(executor, IsolatedExecutor) and executor is not self.executor:
                    executor.shutdown() if complete else executor.kill()
                summary.duration_s = time.perf_counter() - started
                reports.on_complete(summary)
                if self.journal is not None:
                    self.journal.close(complete=complete and not summary.problems)
        return summary

    def _results(
        self, executor: Executor, handle: DriverHandle, requests: Sequence[Request], summary: Summary
    ) -> Iterator[tuple[CaseResult, bool]]:
        """Results as they come; and whether they are of this run, not a resumed one."""
        waiting = deque(requests)
        parts: dict[Group, GroupOutcome] = {}
        open_parts: Counter[Group] = Counter()
        pending: dict[Future[GroupOutcome], Request] = {}
        while waiting or pending:
            while waiting and len(pending) < _AHEAD * self.workers:
                request = waiting.popleft()
                whole = request.group not in open_parts
                earlier = self.journal.find_all(_key(request)) if self.journal and whole else None
                if earlier is not None:
                    results, seconds = earlier
                    summary.resumed += len(results)
                    add(summary.seconds, seconds)
                    yield from ((one, False) for one in results)
                    continue
                if whole:
                    open_parts[request.group] = 1
                pending[executor.submit(run_in_worker, handle, request)] = request
            for future in wait(pending, return_when=FIRST_COMPLETED).done if pending else ():
                request = pending.pop(future)
                outcome, more = self._outcome(future, request)
                more += _turns(request, outcome.left)
                waiting.extendleft(reversed(more))
                open_parts[request.group] += len(more) - 1
                whole_group = parts.setdefault(request.group, GroupOutcome())
                whole_group.results += outcome.results
                for total in (whole_group.seconds, summary.seconds):
                    add(total, outcome.seconds)
                if not open_parts[request.group]:
                    done = parts.pop(request.group)
                    if self.journal is not None:
                        key = _key(replace(request, numbers=self.samples or None))
                        self.journal.add_all(key, done.results, done.seconds)
                yield from ((one, True) for one in outcome.results)

    def _outcome(self, future: Future[GroupOutcome], request: Request) -> tuple[GroupOutcome, list[Request]]:
        """A task's results; or, where it took its process down, the halves to run instead."""
        try:
            return future.result(), []
        except (WorkerDied, TaskTimedOut) as death:
            every = tuple(one.number for one in planned(request.group, request.numbers, request.most))
            numbers, left = every[:_TURN], every[_TURN:]
            if len(numbers) > 1:
                middle = len(numbers) // 2
                halves = (numbers[:middle], numbers[middle:])
                return GroupOutcome(left=left), [replace(request, numbers=one) for one in halves]
            return GroupOutcome([_of_death(request, numbers[0] if numbers else "samples", death)]), []
        except BrokenExecutor as error:
            if isinstance(error.__cause__, BackendError):
                raise error.__cause__ from error
            raise BackendError(
                f"the worker process of the driver {self.driver.name!r} did not start: {error}"
            ) from error
        except BaseException as error:  # a defect of the suite itself is one result, not the end
            if is_ctrl_c(error):
                raise
            fields = {"status": Status.ERROR, "reason": told(error)}
            return GroupOutcome([record(request, "group", None, "", fields)]), []


def _turns(request: Request, numbers: Sequence[int]) -> list[Request]:
    """What is left of a task's cases, as further tasks."""
    starts = range(0, len(numbers), _TURN)
    return [replace(request, numbers=tuple(numbers[start : start + _TURN])) for start in starts]


def _of_death(request: Request, number: int | str, death: WorkerDied | TaskTimedOut) -> CaseResult:
    fields: dict[str, Any] = {"reason": str(death), "stderr_tail": tail(death.stderr_tail)}
    if isinstance(death, TaskTimedOut):
        fields |= {"status": Status.TIMED_OUT, "duration_s": death.seconds}
    else:
        fields |= {"status": Status.CRASHED, "signal": death.signal, "exit_code": death.exit_code}
    return record(request, number, None, "", fields)


def _key(request: Request) -> str:
    """The group and all that decides its results on this backend."""
    rest = repr((request.target, request.numbers, request.most))
    return f"{request.group.case_id('group')}-{hashlib.sha256(rest.encode()).hexdigest()[:8]}"
