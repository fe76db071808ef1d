"""``TestRunner``: cases in, results out, one by one, to reporters and the journal.

Not here: what one case does (``execution``), processes (``executor``), what reports
look like (``optest.reporting``), declared gaps (``judge`` applies them).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from ..backends.driver import BackendDriver
from ..core.case import BackendTarget, TestCase
from ..core.environment import describe_run
from ..core.interrupt import is_ctrl_c, watched
from ..core.result import CaseResult, RunInfo, Status
from ..core.summary import Summary
from ..errors import BackendError, OptestError, told
from ..plan.rerun import rerun_command
from ..reporting.manager import Reporter, ReportManager
from .execution import DriverHandle, record, run_case, run_in_worker, set_up, start_worker, tail
from .executor import DEFAULT_TIMEOUT_S, IsolatedExecutor, TaskTimedOut, WorkerDied
from .journal import Journal

_IN_FLIGHT = 4
"""Cases per worker that are submitted and have no result: enough to keep every worker busy."""


class TestRunner:
    """Runs cases on one driver.

    A driver that is ``isolated`` runs in ``workers`` processes of its own, where a case
    may take ``timeout`` seconds (300 if None); others run in this process, unless several
    workers or a timeout are asked for. A failing case is tried again up to ``retries``
    times; passing then makes it flaky. ``judge`` has the last word on each result;
    ``rerun`` gives the command that runs a case again. ``executor`` is any
    ``concurrent.futures.Executor`` to use instead; it is left open.
    """

    __test__: ClassVar[bool] = False  # no test class of pytest's

    def __init__(
        self,
        driver: BackendDriver,
        reporters: Sequence[Reporter] = (),
        *,
        workers: int = 1,
        timeout: float | None = None,
        retries: int = 0,
        fail_fast: bool = False,
        judge: Callable[[CaseResult], CaseResult] | None = None,
        rerun: Callable[[TestCase], str] = rerun_command,
        journal: Journal | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.driver, self.reporters = driver, tuple(reporters)
        self.workers, self.timeout, self.retries, self.fail_fast = workers, timeout, retries, fail_fast
        self._judge, self._rerun, self._journal = judge, rerun, journal
        self._executor = executor

    def run(
        self, cases: Iterable[TestCase], info: RunInfo | None = None, total: int | None = None
    ) -> Summary:
        """Run ``cases``; what is wrong with a case is in its result.

        Ctrl-C ends the run with a summary of what ran, marked ``interrupted``. Raises
        :class:`BackendError` if the driver cannot be set up, and what iterating over
        ``cases`` raises; results are reported to the end in either case.
        """
        if total is None and isinstance(cases, Sized):
            total = len(cases)
        info = info or describe_run(
            BackendTarget(self.driver.kind, self.driver.name), packages=self.driver.packages
        )
        summary = Summary(total)
        started = time.perf_counter()
        complete = False
        with ReportManager(self.reporters, summary) as reports:
            flow = _Flow(self, summary)
            try:
                with watched():
                    flow.open()  # a backend that is not there costs no report
                    reports.on_start(info, total)
                    for result, fresh in flow.results(cases):
                        summary.add(result)
                        reports.on_case_result(result)
                        if self.fail_fast and fresh and result.status.failed:
                            summary.stopped = True
                            break
                complete = not summary.stopped
            except KeyboardInterrupt:
                summary.interrupted = True
            finally:
                flow.close(now=not complete)
                summary.duration_s = time.perf_counter() - started
                reports.on_complete(summary)
                if self._journal is not None:
                    self._journal.close(complete=complete and not summary.problems)
        return summary


class _Flow:
    """One run's way from cases to judged results."""

    def __init__(self, runner: TestRunner, summary: Summary) -> None:
        self.runner, self.summary = runner, summary
        self.done: SimpleQueue[Future[CaseResult]] = SimpleQueue()
        self.pending: dict[Future[CaseResult], tuple[TestCase, int, str]] = {}
        self.executor: Executor | None = None
        self.call: Callable[[TestCase], CaseResult]
        self.limit = 1
        self.lost: BrokenExecutor | None = None
        """Why nothing more can be submitted; what was, may still have results."""

    def open(self) -> None:
        runner = self.runner
        driver = runner.driver
        if runner._executor is None and not (driver.isolated or runner.workers > 1 or runner.timeout):
            set_up(driver)
            self.call, self.executor = partial(run_case, driver), _InlineExecutor()
            return
        handle = DriverHandle(driver)
        self.call = partial(run_in_worker, handle)
        self.limit = _IN_FLIGHT * max(runner.workers, 1)
        self.executor = runner._executor or IsolatedExecutor(
            runner.workers,
            timeout=runner.timeout or DEFAULT_TIMEOUT_S,
            start=partial(start_worker, handle),
        )

    def close(self, *, now: bool) -> None:
        """End what ``open`` started; ``now``: without waiting for the cases in flight."""
        if self.executor is None:
            return
        if self.executor is self.runner._executor:
            for future in self.pending:
                future.cancel()
        elif isinstance(self.executor, IsolatedExecutor):
            self.executor.kill() if now else self.executor.shutdown()
        else:
            try:
                self.runner.driver.teardown()
            except BaseException as error:  # what has run keeps its results
                if is_ctrl_c(error):
                    raise
                name = self.runner.driver.name
                self.summary.problems.append(f"teardown of the driver {name}: {told(error)}")

    def results(self, cases: Iterable[TestCase]) -> Iterator[tuple[CaseResult, bool]]:
        """Results as they come, in any order; and whether they are of this run, not a resumed one."""
        remaining = iter(cases)
        exhausted = False
        while True:
            while not (exhausted or self.lost) and len(self.pending) < self.limit:
                case = next(remaining, None)
                if case is None:
                    exhausted = True
                elif (earlier := self._earlier(case)) is not None:
                    yield earlier, False
                else:
                    self._submit(case, 1, "")
            if not self.pending:
                if self.lost:
                    raise self._broken(self.lost) from self.lost
                return
            result = self._next()
            if result is not None:
                yield result, True

    def _earlier(self, case: TestCase) -> CaseResult | None:
        """The case's result from the run that is resumed."""
        journal = self.runner._journal
        found = journal.find(case) if journal is not None else None
        if found is None:
            return None
        self.summary.resumed += 1
        return self._judged(found)

    def _submit(self, case: TestCase, attempt: int, first: str) -> None:
        assert self.executor is not None
        try:
            future: Future[CaseResult] = self.executor.submit(self.call, case)
        except BrokenExecutor as error:
            self.lost = error
            return
        self.pending[future] = (case, attempt, first)
        future.add_done_callback(self.done.put)

    def _next(self) -> CaseResult | None:
        """The next finished case; None if it is to be tried again, or nothing can run any more."""
        future = self.done.get()
        case, attempt, first = self.pending.pop(future)
        try:
            result = self._outcome(future, case)
        except BrokenExecutor as error:
            self.lost = error
            return None
        if result.status.failed and attempt <= self.runner.retries:
            self._submit(case, attempt + 1, first or f"{result.status}: {result.reason}")
            return None
        if attempt > 1:
            flaky = not result.status.failed
            reason = (
                f"flaky: attempt {attempt} passed, the first did not ({first})" if flaky else result.reason
            )
            result = replace(result, attempts=attempt, flaky=flaky, reason=reason)
        if result.status is not Status.PASSED or result.flaky:
            result = replace(result, rerun=self.runner._rerun(case))
        if self.runner._journal is not None:
            self.runner._journal.add(case, result)
        return self._judged(result)

    def _judged(self, result: CaseResult) -> CaseResult:
        return result if self.runner._judge is None else self.runner._judge(result)

    def _outcome(self, future: Future[CaseResult], case: TestCase) -> CaseResult:
        """What the future came to, as a record."""
        try:
            return future.result()
        except WorkerDied as death:
            why = f"{death} while it ran this case"
            if death.signal == "SIGKILL":
                why += " (if nobody else did, the system kills what takes too much memory)"
            return record(
                case,
                Status.CRASHED,
                why,
                signal=death.signal,
                exit_code=death.exit_code,
                stderr_tail=tail(death.stderr_tail),
            )
        except TaskTimedOut as late:
            return record(
                case,
                Status.TIMED_OUT,
                str(late),
                duration_s=late.seconds,
                stderr_tail=tail(late.stderr_tail, 40),
            )
        except BrokenExecutor:
            raise
        except OptestError as error:
            return record(case, Status.ERROR, error.message)
        except BaseException as error:  # another executor's own
            if is_ctrl_c(error):
                raise
            return record(case, Status.ERROR, told(error))

    def _broken(self, error: BrokenExecutor) -> BackendError:
        cause = error.__cause__
        if isinstance(cause, BackendError):
            return cause
        said = tail(getattr(cause, "stderr_tail", ""))
        text = f"the worker process of the driver {self.runner.driver.name!r} did not start: {cause or error}"
        return BackendError(f"{text}\n{said}" if said else text)


class _InlineExecutor(Executor):
    """Runs each task at once, in this thread; Ctrl-C goes through."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
