"""``IsolatedExecutor``: a ``concurrent.futures.Executor`` for tasks that may crash or hang.

A task that kills its process, or takes too long, costs itself alone: its future gets
:class:`WorkerDied` or :class:`TaskTimedOut`, and a new process takes over. Processes are
reused and always have the next task at hand. Not here: the process's own side
(``worker``), and what a task is to optest (``execution``, ``runner``).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing.connection import Connection, wait
from typing import Any

from ..core.interrupt import is_ctrl_c
from .process import START_TIMEOUT_S, Task, WorkerProcess
from .worker import DONE, FAILED_START, RAISED, READY, STARTED, refuse_inside_import

DEFAULT_TIMEOUT_S = 300.0
"""Seconds that a task may take by default."""
_GRACE_S = 0.25
"""Seconds that a hung process gets to write its stack to stderr before it is killed."""
_AHEAD = 2
"""How many tasks a process holds: the one that it runs and the next."""
_AHEAD_BYTES = 32 * 1024
"""Tasks larger than this go to idle processes only, so that the two sides never both wait to send."""
_RESTARTS = 3
"""How many processes in a row may fail to start."""
_UNBLAMED = 3
"""How often a process may die while it holds a task that has not begun, before the task is blamed."""


class WorkerDied(Exception):
    """The process died while it ran a task.

    Holds its ``exit_code`` or the name of its ``signal``, and the end of its stderr.
    """

    def __init__(self, exit_code: int | None, signal: str | None, stderr_tail: str) -> None:
        self.exit_code, self.signal, self.stderr_tail = exit_code, signal, stderr_tail
        how = f"was killed by {signal}" if signal else f"exited with {exit_code}"
        super().__init__(f"the worker process {how}")


class TaskTimedOut(Exception):
    """The task took more than ``seconds``; ``stderr_tail`` ends with the stack at that time."""

    def __init__(self, seconds: float, stderr_tail: str) -> None:
        self.seconds, self.stderr_tail = seconds, stderr_tail
        super().__init__(f"took more than {seconds:g} s and was stopped")


class WorkerStartFailed(BrokenExecutor):
    """No process can be started, or its start function raised (``__cause__``)."""


class IsolatedExecutor(Executor):
    """Runs tasks in ``max_workers`` processes that are spawned, not forked.

    ``timeout`` limits one task, in seconds; None means no limit. ``start`` is called first in every
    process, with True if the process replaces one that died or hung. Tasks and ``start`` must be
    picklable. Processes start when they are needed. When a process ends, everything that it started
    is killed, including children in other process groups.
    """

    def __init__(
        self,
        max_workers: int = 1,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        start: Callable[[bool], None] | None = None,
    ) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}; give at least 1")
        refuse_inside_import(type(self))
        self._max_workers, self._timeout, self._start = max_workers, timeout, start
        self._lock = threading.RLock()  # callbacks of canceled futures may acquire it again
        self._waiting: deque[Task] = deque()
        self._workers: list[WorkerProcess] = []
        self._closed = self._killed = False
        self._broken: WorkerStartFailed | None = None
        self._started_once = False
        self._failed_starts = 0
        self._replace_crashed = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule ``fn(*args, **kwargs)``; if it cannot be pickled, the future holds the error."""
        future: Future[Any] = Future()
        try:
            payload = pickle.dumps((fn, args, kwargs))
        except BaseException as error:  # a task's own __reduce__ may raise anything
            if is_ctrl_c(error):
                raise
            future.set_exception(error)
            return future
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._broken:
                raise self._broken
            self._waiting.append(Task(future, payload))
            if self._thread is None:
                self._thread = threading.Thread(target=self._manage, name="optest-executor", daemon=True)
                self._thread.start()
        self._wake()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down as in ``concurrent.futures``; with ``wait``, no process is left when this returns."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                self._cancel_waiting()
        self._end(wait)

    def kill(self) -> None:
        """Stop now: cancel unfinished tasks and kill the processes; finished tasks keep their outcomes."""
        with self._lock:
            self._closed = self._killed = True
            self._cancel_waiting()
        self._end(True)

    def _end(self, wait: bool) -> None:
        if self._thread is None:
            self._close_pipe()
            return
        self._wake()
        if wait:
            self._thread.join()

    def _cancel_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft().cancel()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"w")
        except (BlockingIOError, OSError):
            return  # it is awake already, or has ended

    # The methods below run in the managing thread.

    def _manage(self) -> None:
        try:
            while not self._finished():
                self._fill()
                self._wait()
        finally:
            killed = self._killed
            if killed:
                self._hear_the_rest()
            for worker in self._workers:
                worker.stop_asking()
            for worker in self._workers:
                worker.end(kill=killed)
                for task in worker.tasks:
                    task.cancel()
            self._workers.clear()
            with self._lock:
                self._closed = True
                self._cancel_waiting()
            self._close_pipe()

    def _close_pipe(self) -> None:
        with self._lock:
            wakes = (self._wake_read, self._wake_write)
            self._wake_read = self._wake_write = -1
        for end in wakes:
            if end >= 0:
                os.close(end)

    def _finished(self) -> bool:
        with self._lock:
            if self._killed:
                return True
            return self._closed and not self._waiting and not any(one.tasks for one in self._workers)

    def _fill(self) -> None:
        """Give every process its tasks, and start processes for what is left."""
        for depth in range(_AHEAD):
            for worker in list(self._workers):
                if worker.ready and len(worker.tasks) == depth:
                    self._give(worker)
        with self._lock:
            starting = sum(not one.ready for one in self._workers)
            wanted = min(len(self._waiting) - starting, self._max_workers - len(self._workers))
        for _ in range(max(wanted, 0)):
            crashed = self._replace_crashed > 0
            self._replace_crashed -= crashed
            try:
                worker = WorkerProcess(self._timeout, self._start, crashed)
            except Exception as error:  # noqa: BLE001  # no memory, no processes, a start that does not pickle
                self._start_failed(error, crashed=crashed)
                self._wake()  # and try again
                return
            self._workers.append(worker)

    def _give(self, worker: WorkerProcess) -> None:
        task = self._next_for(worker)
        if task is None:
            return
        worker.tasks.append(task)
        with contextlib.suppress(OSError):  # gone: its last messages are read first
            worker.channel.send_bytes(task.payload)

    def _next_for(self, worker: WorkerProcess) -> Task | None:
        """The first task that is still wanted, unless it is too large for a busy process."""
        with self._lock:
            while self._waiting:
                task = self._waiting[0]
                if worker.tasks and worker.held_bytes + len(task.payload) > _AHEAD_BYTES:
                    return None
                self._waiting.popleft()
                if task.begin():
                    return task
        return None

    def _wait(self) -> None:
        now = time.monotonic()
        deadlines = [one.deadline for one in self._workers if one.deadline is not None]
        patience = max(0.0, min(deadlines) - now) if deadlines else None
        by_channel = {one.channel: one for one in self._workers}
        for source in wait([self._wake_read, *by_channel], patience):
            if isinstance(source, Connection):
                self._hear(by_channel[source])
            else:
                os.read(self._wake_read, 4096)
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.deadline is not None and worker.deadline <= now:
                self._too_long(worker)

    def _hear(self, worker: WorkerProcess) -> None:
        try:
            message = worker.channel.recv_bytes()
        except (EOFError, OSError):
            self._died(worker)
            return
        kind, rest = message[:1], message[1:]
        if kind == READY:
            worker.ready, worker.deadline = True, None
            self._started_once, self._failed_starts = True, 0
        elif kind == FAILED_START:
            self._workers.remove(worker)
            worker.end(kill=True)
            raised = pickle.loads(rest)
            self._start_failed(raised, crashed=worker.replaces_crashed, final=not self._started_once)
        elif kind == STARTED:
            task = worker.tasks[0]
            task.started, worker.mark = True, int(rest)
            worker.deadline = None if self._timeout is None else time.monotonic() + self._timeout + _GRACE_S
        else:
            assert kind in (DONE, RAISED)
            worker.deadline = None
            future = worker.tasks.popleft().future
            try:
                answer = pickle.loads(rest)
            except BaseException as error:  # noqa: BLE001  # what was sent may do anything when it is loaded
                kind, answer = RAISED, error
            if kind == DONE:
                future.set_result(answer)
            else:
                future.set_exception(answer)

    def _hear_the_rest(self) -> None:
        """Read the messages that processes have sent so far, so that finished tasks keep their outcomes."""
        for worker in list(self._workers):
            while worker in self._workers and worker.channel.poll():
                self._hear(worker)

    def _died(self, worker: WorkerProcess) -> None:
        """Handle the death of a process: blame the task that it ran, and run its other tasks elsewhere."""
        self._workers.remove(worker)
        exit_code, signal = worker.end(kill=False, patience=1.0)
        death = WorkerDied(exit_code, signal, worker.stderr_tail())
        if not worker.ready:
            self._start_failed(death, crashed=worker.replaces_crashed)
            return
        self._replace_crashed += 1
        if worker.tasks and (worker.tasks[0].started or worker.tasks[0].losses >= _UNBLAMED):
            worker.tasks.popleft().future.set_exception(death)
        elif worker.tasks:
            worker.tasks[0].losses += 1
        self._take_back(worker)

    def _too_long(self, worker: WorkerProcess) -> None:
        self._workers.remove(worker)
        worker.end(kill=True)
        if not worker.ready:
            self._start_failed(TimeoutError(f"it took more than {START_TIMEOUT_S:g} s"))
            return
        assert self._timeout is not None
        self._replace_crashed += 1
        worker.tasks.popleft().future.set_exception(TaskTimedOut(self._timeout, worker.stderr_tail()))
        self._take_back(worker)

    def _take_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(worker.tasks))
        worker.tasks.clear()

    def _start_failed(self, error: BaseException, *, crashed: bool = False, final: bool = False) -> None:
        """Handle a failed start: try again a few times, unless it is ``final``; then break the executor."""
        self._failed_starts += 1
        self._replace_crashed += crashed
        if not final and self._failed_starts < _RESTARTS:
            return
        broken = WorkerStartFailed(f"no worker process can be started: {error}")
        broken.__cause__ = error
        with self._lock:
            self._broken = broken
            waiting, self._waiting = self._waiting, deque()
        for task in waiting:
            if task.begin():
                task.future.set_exception(broken)
