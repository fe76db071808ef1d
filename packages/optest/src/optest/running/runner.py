"""``TestRunner``: runs tasks, and passes each result to the reporters and the journal.

Not here: what a task does (``task``), processes (``executor``), what reports look like
(``optest.reporting``), declared gaps (``judge`` applies them).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from ..backends.driver import BackendDriver
from ..core.case import BackendTarget, TestCase
from ..core.environment import describe_run
from ..core.interrupt import deferred, is_ctrl_c, watched
from ..core.result import CaseResult, RunInfo, Status
from ..core.summary import Summary
from ..errors import BackendError, OptestError, told
from ..reporting.manager import Reporter, ReportManager
from .execution import tail
from .executor import DEFAULT_TIMEOUT_S, IsolatedExecutor, TaskTimedOut, WorkerDied
from .handle import DriverHandle, run_in_worker, set_up, start_worker
from .journal import Journal
from .task import CaseTask, Task, TaskOutcome, add_seconds

_IN_FLIGHT = 4
"""How many submitted tasks per worker may lack a result: enough to keep every worker busy."""


class TestRunner:
    """Runs cases, or tasks of several cases, on one driver.

    A driver that is ``isolated`` runs in ``workers`` processes of its own, where a task
    may take ``timeout`` seconds (300 if None). Other drivers run in this process, unless several
    workers or a timeout are given. A failing case is retried up to ``retries`` times; if it then
    passes, it is flaky. A task that kills its process, or takes too long, is split and run again
    until the case at fault is alone. ``judge`` makes the final decision on each result. ``executor``
    is any ``concurrent.futures.Executor`` to use instead; it is left open.
    """

    __test__: ClassVar[bool] = False  # pytest must not collect it

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
        journal: Journal | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.driver, self.reporters = driver, tuple(reporters)
        self.workers, self.timeout, self.retries, self.fail_fast = workers, timeout, retries, fail_fast
        self._judge, self._journal, self._executor = judge, journal, executor

    def run(
        self, work: Iterable[TestCase | Task], info: RunInfo | None = None, total: int | None = None
    ) -> Summary:
        """Run ``work``; a failure of a case is part of its result.

        Ctrl-C ends the run with a summary of what ran, marked ``interrupted``. Raises
        :class:`BackendError` if the driver cannot be set up or its processes are lost, and any
        exception from iterating over ``work``. In both cases the results so far are reported, and the
        summary is marked ``interrupted`` as well. ``info.planned`` is set to the number of cases.
        """
        if total is None and isinstance(work, Sized):
            total = len(work) if all(isinstance(one, TestCase) or one.cases == 1 for one in work) else None
        info = info or describe_run(
            BackendTarget(self.driver.kind, self.driver.name), packages=self.driver.packages
        )
        info.planned = total
        summary = Summary(total)
        started = time.perf_counter()
        complete = False
        with ReportManager(self.reporters, summary) as reports:
            flow = _Flow(self, summary)
            try:
                with watched():
                    flow.open()  # a missing backend must not overwrite a report
                    reports.on_start(info, total)
                    for result, fresh in flow.results(work):
                        with deferred():
                            summary.add(result)
                            reports.on_case_result(result)
                            flow.finished.popleft()
                        if self.fail_fast and fresh and result.status.failed:
                            summary.stopped = True
                            break
                complete = not summary.stopped
            except KeyboardInterrupt:
                summary.interrupted = True
                flow.stop()
                for result in flow.arrived():
                    summary.add(result)
                    reports.on_case_result(result)
            finally:
                flow.close(now=not complete)
                complete = complete and not summary.missing
                summary.interrupted = not (complete or summary.stopped)
                summary.duration_s = time.perf_counter() - started
                reports.on_complete(summary)
                if self._journal is not None:
                    self._journal.close(complete=complete and not summary.problems)
        return summary


@dataclass(eq=False)
class _Whole:
    """A task as it was given; it may run in several parts, of which ``open`` are not finished yet."""

    task: Task
    open: int = 1
    results: list[CaseResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Part:
    """A task to submit; ``first`` says, by case id, how the first attempt of a retried case ended."""

    task: Task
    whole: _Whole
    attempt: int = 1
    first: Mapping[str, str] = field(default_factory=dict)


class _Flow:
    """The state of one run, from tasks to judged results."""

    def __init__(self, runner: TestRunner, summary: Summary) -> None:
        self.runner, self.summary = runner, summary
        self.done: SimpleQueue[Future[TaskOutcome]] = SimpleQueue()
        self.waiting: deque[_Part] = deque()
        self.pending: dict[Future[TaskOutcome], _Part] = {}
        self.finished: deque[CaseResult] = deque()
        """Results that have not been reported yet, the next one first."""
        self.executor: Executor | None = None
        self.call: Callable[[Task], TaskOutcome]
        self.limit = 1
        self.lost: Exception | None = None
        """Why no more tasks can be submitted; submitted tasks may still give results."""

    def open(self) -> None:
        runner = self.runner
        driver = runner.driver
        if runner._executor is None and not (driver.isolated or runner.workers > 1 or runner.timeout):
            set_up(driver)
            self.call, self.executor = partial(_run_here, driver), _InlineExecutor()
            return
        handle = DriverHandle(driver)
        self.call = partial(run_in_worker, handle)
        self.limit = _IN_FLIGHT * max(runner.workers, 1)
        self.executor = runner._executor or IsolatedExecutor(
            runner.workers,
            timeout=runner.timeout or DEFAULT_TIMEOUT_S,
            start=partial(start_worker, handle),
        )

    def stop(self) -> None:
        """Cancel the tasks in flight; finished tasks keep their outcomes."""
        if isinstance(self.executor, IsolatedExecutor) and self.executor is not self.runner._executor:
            self.executor.kill()
        for future in tuple(self.pending):
            future.cancel()

    def close(self, *, now: bool) -> None:
        """End what ``open`` started; with ``now``, do not wait for the tasks in flight."""
        if self.executor is None:
            return
        if now:
            self.stop()
        if self.executor is self.runner._executor:
            return
        if isinstance(self.executor, IsolatedExecutor):
            self.executor.shutdown()
        else:
            try:
                self.runner.driver.teardown()
            except BaseException as error:  # the results so far are kept
                if is_ctrl_c(error):
                    raise
                name = self.runner.driver.name
                self.summary.problems.append(f"teardown of the driver {name}: {told(error)}")

    def results(self, work: Iterable[TestCase | Task]) -> Iterator[tuple[CaseResult, bool]]:
        """Yield results as they arrive, each with whether this run made it, not the resumed one.

        The caller removes each result that it takes from ``finished``.
        """
        remaining = iter(work)
        exhausted = False
        while True:
            while not self.lost and len(self.pending) < self.limit:
                if self.waiting:
                    self._submit(self.waiting.popleft())
                    continue
                given = None if exhausted else next(remaining, None)
                if given is None:
                    exhausted = True
                    break
                task = CaseTask(given) if isinstance(given, TestCase) else given
                earlier = self._earlier(task)
                if earlier is None:
                    self._submit(_Part(task, _Whole(task)))
                else:
                    self.finished.extend(map(self._judged, earlier))
                    yield from ((one, False) for one in tuple(self.finished))
            if not self.pending:
                if self.lost:
                    raise self._broken(self.lost) from self.lost
                return
            future = self.done.get()
            with deferred():
                self._take(future)
            yield from ((one, True) for one in tuple(self.finished))

    def arrived(self) -> deque[CaseResult]:
        """Return the results that have arrived so far and have not been reported."""
        for future in tuple(self.pending):
            if future.done() and not _given_up(future):
                self._take(future)
        return self.finished

    def _earlier(self, task: Task) -> list[CaseResult] | None:
        """Return the task's results from the resumed run, if it has any."""
        journal = self.runner._journal
        found = journal.find(task.key) if journal is not None else None
        if found is None:
            return None
        results, seconds = found
        self.summary.resumed += len(results)
        add_seconds(self.summary.seconds, seconds)
        return results

    def _submit(self, part: _Part) -> None:
        assert self.executor is not None
        try:
            future: Future[TaskOutcome] = self.executor.submit(self.call, part.task)
        except RuntimeError as error:  # broken, or shut down by somebody else
            self.lost = error
            return
        self.pending[future] = part
        future.add_done_callback(self.done.put)

    def _take(self, future: Future[TaskOutcome]) -> None:
        """Add the results of an ended task to ``finished``, except those of cases to retry."""
        part = self.pending.pop(future)
        whole = part.whole
        try:
            outcome = self._outcome(future, part.task)
        except (BrokenExecutor, CancelledError) as error:
            self.lost = error
            return
        for total in (whole.seconds, self.summary.seconds):
            add_seconds(total, outcome.seconds)
        more = [replace(part, task=one) for one in outcome.left]
        final: list[CaseResult] = []
        failed: list[CaseResult] = []
        for one in outcome.results:
            again = one.status.failed and part.attempt <= self.runner.retries
            (failed if again else final).append(one)
        if failed:
            first = {one.case_id: f"{one.status}: {one.reason}" for one in failed} | dict(part.first)
            more.append(_Part(part.task.only(failed), whole, part.attempt + 1, first))
        self.waiting.extendleft(reversed(more))
        results = [_finished(one, part) for one in final]
        whole.open += len(more) - 1
        whole.results += results
        if not whole.open and self.runner._journal is not None:
            self.runner._journal.add(whole.task.key, whole.results, whole.seconds)
        self.finished.extend(map(self._judged, results))

    def _judged(self, result: CaseResult) -> CaseResult:
        return result if self.runner._judge is None else self.runner._judge(result)

    def _outcome(self, future: Future[TaskOutcome], task: Task) -> TaskOutcome:
        """Return the records of an ended task or, if its process died, the parts to run instead."""
        try:
            return future.result()
        except (WorkerDied, TaskTimedOut) as death:
            parts = task.smaller()
            return TaskOutcome(left=parts) if parts else TaskOutcome([_of_death(task, death)])
        except (BrokenExecutor, CancelledError):  # the task has no result, through no fault of its own
            raise
        except OptestError as error:
            return TaskOutcome([task.record(Status.ERROR, error.message)])
        except BaseException as error:  # another executor's own, or a defect of the suite itself
            if is_ctrl_c(error):
                raise
            return TaskOutcome([task.record(Status.ERROR, told(error))])

    def _broken(self, error: Exception) -> BackendError:
        cause = error.__cause__
        if isinstance(cause, BackendError):
            return cause
        if not isinstance(error, BrokenExecutor):
            return BackendError(
                f"the executor of the run was stopped while cases were left: {told(error)}",
                "--resume runs the cases that have no result",
            )
        said = tail(getattr(cause, "stderr_tail", ""))
        text = f"the worker process of the driver {self.runner.driver.name!r} did not start: {cause or error}"
        return BackendError(f"{text}\n{said}" if said else text)


def _given_up(future: Future[TaskOutcome]) -> bool:
    return future.cancelled() or isinstance(future.exception(), CancelledError)  # before, or while it ran


def _of_death(task: Task, death: WorkerDied | TaskTimedOut) -> CaseResult:
    if isinstance(death, TaskTimedOut):
        return task.record(
            Status.TIMED_OUT,
            str(death),
            duration_s=death.seconds,
            stderr_tail=tail(death.stderr_tail, 40),
        )
    why = f"{death} while it ran this case"
    if death.signal == "SIGKILL":
        why += " (if nobody else did, the system kills what takes too much memory)"
    return task.record(
        Status.CRASHED,
        why,
        signal=death.signal,
        exit_code=death.exit_code,
        stderr_tail=tail(death.stderr_tail),
    )


def _finished(result: CaseResult, part: _Part) -> CaseResult:
    """Return ``result`` with the outcome of earlier attempts and the command that runs it again."""
    if part.attempt > 1:
        flaky, first = not result.status.failed, part.first.get(result.case_id, "it failed")
        reason = f"flaky: attempt {part.attempt} passed, the first did not ({first})"
        result = replace(
            result, attempts=part.attempt, flaky=flaky, reason=reason if flaky else result.reason
        )
    if (result.status is not Status.PASSED or result.flaky) and not result.rerun:
        result = replace(result, rerun=part.task.rerun(result))
    return result


def _run_here(driver: BackendDriver, task: Task) -> TaskOutcome:
    return task.run(driver)


class _InlineExecutor(Executor):
    """Runs each task immediately in this thread, and lets Ctrl-C through."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            future.set_exception(error)
        return future
