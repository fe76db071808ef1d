"""``RayExecutor``: tasks on the nodes of a Ray cluster, each in an isolated process there.

A task that crashes or hangs costs itself, as on one machine; a node that is lost costs
only another run of the tasks that it held. Not here: processes (``executor``), results
and their journal (``runner``), which stay on this machine.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from typing import Any

from ..errors import BackendError, MissingExtra
from .executor import DEFAULT_TIMEOUT_S, IsolatedExecutor, TaskTimedOut, WorkerDied, WorkerStartFailed
from .process import START_TIMEOUT_S, Task

_AHEAD = 2
"""How many tasks a worker holds: the one that it runs and the next."""
_LOSSES = 3
"""How many nodes may be lost while they hold a task, before the task is blamed."""
_POLL_S = 0.05
_GRACE_S = 2.0
"""Seconds that a worker waits before it reports a task that was killed.

A node that goes down kills its processes one by one: then the worker is killed during that time too,
and the task is not blamed.
"""
_CLOSE_S = 15.0
"""Seconds that drivers get to be torn down."""


class NodeLost(WorkerDied):
    """The node that ran the task was lost too often."""

    def __init__(self) -> None:
        super().__init__(None, None, "")
        self.args = (f"the node that ran it was lost {_LOSSES} times",)

    def __str__(self) -> str:
        return str(self.args[0])


class Worker:
    """A Ray actor on a node, which runs tasks in an :class:`IsolatedExecutor` with one process."""

    def __init__(self, timeout: float | None, start: bytes) -> None:
        self._timeout, self._start = timeout, start

    def ready(self) -> tuple[str, Any] | None:
        """Return None once the worker is ready, or an answer as of ``run`` that says why it cannot start."""
        try:
            start = pickle.loads(self._start)
        except Exception as error:  # noqa: BLE001  # whatever importing foreign code raises
            text = f"what the run needs cannot be imported on the node: {type(error).__name__}: {error}"
            return "broken", (text, None)
        self._executor = IsolatedExecutor(1, timeout=self._timeout, start=start)
        return None

    def close(self) -> None:
        """Tear down the driver and end the process."""
        self._executor.shutdown()

    def run(self, payload: bytes) -> tuple[str, Any]:
        """Run a pickled call; return its outcome in types that can be unpickled without an import."""
        try:
            return "done", self._executor.submit(_call, payload).result()
        except WorkerDied as death:
            if death.signal == "SIGKILL":
                time.sleep(_GRACE_S)
            return "died", (death.exit_code, death.signal, death.stderr_tail)
        except TaskTimedOut as late:
            return "late", (late.seconds, late.stderr_tail)
        except BrokenExecutor as broken:
            cause = broken.__cause__
            known = cause if isinstance(cause, BackendError) else None
            return "broken", (str(cause or broken), None if known is None else (known.message, known.hint))
        except BaseException as error:  # noqa: BLE001  # whatever a task raises is its answer
            return "raised", error


def _call(payload: bytes) -> Any:
    function, args, kwargs = pickle.loads(payload)
    return function(*args, **kwargs)


@dataclass(eq=False)
class _Remote:
    """A worker as this machine sees it; ``since`` is when it was requested."""

    actor: Any
    starting: Any
    since: float = field(default_factory=time.monotonic)
    held: dict[Any, Task] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        return self.starting is None


class RayExecutor(Executor):
    """Runs tasks on a Ray cluster: that of ``RAY_ADDRESS`` or of this machine, or else one that it starts.

    ``max_workers`` is the number of processes, by default one per CPU of the cluster. ``timeout``
    and ``start`` are as in :class:`IsolatedExecutor`. optest and the driver must be installed on
    every node. Raises :class:`MissingExtra` without Ray, and :class:`BackendError` without a cluster.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        start: Callable[[bool], None] | None = None,
    ) -> None:
        self._ray, self._owned = _connected()
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        self.max_workers = max_workers or max(cpus, 1)
        self._timeout, self._start = timeout, pickle.dumps(start)
        self._actor = self._ray.remote(num_cpus=1, max_concurrency=1)(Worker)
        self._lock = threading.Lock()
        self._waiting: deque[Task] = deque()
        self._workers: list[_Remote] = []
        self._closed = self._killed = False
        self._broken: WorkerStartFailed | None = None
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._dispatch, name="optest-ray", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` on some node; raises ``BrokenExecutor`` where no worker can start."""
        task = Task(Future(), pickle.dumps((fn, args, kwargs)))
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._closed:
                raise RuntimeError("cannot submit a task after shutdown")
            self._waiting.append(task)
        self._wake.set()
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; end the workers when the submitted tasks are done.

        With ``cancel_futures``, tasks that wait for a worker are canceled.
        """
        with self._lock:
            self._closed = True
            if cancel_futures:
                while self._waiting:
                    self._waiting.popleft().cancel()
        self._wake.set()
        if wait:
            self._thread.join()
            if self._owned:
                self._ray.shutdown()

    @property
    def idle(self) -> bool:
        """Whether every submitted task has finished."""
        with self._lock:
            return not self._waiting and not any(one.held for one in self._workers)

    def kill(self) -> None:
        """End the workers at once; tasks that have no result are canceled."""
        with self._lock:
            self._closed = self._killed = True
            while self._waiting:
                self._waiting.popleft().cancel()
        self.shutdown()

    def _dispatch(self) -> None:
        """Hand out tasks and take answers; this is the main loop of the thread."""
        try:
            while not self._finished():
                self._hire()
                self._assign()
                self._collect()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever Ray raises without its cluster
            self._break((f"the Ray cluster is gone: {error}", None))
            for worker in self._workers:
                for task in worker.held.values():
                    task.future.set_exception(self._broken)
        else:
            self._dismiss()

    def _dismiss(self) -> None:
        """Tear down the drivers, unless the executor was killed, and end the workers."""
        closing = [] if self._killed else [one.actor.close.remote() for one in self._workers if one.there]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for worker in self._workers:
            self._ray.kill(worker.actor)
            for task in worker.held.values():
                task.cancel()

    def _finished(self) -> bool:
        return self._killed or (self._closed and self.idle)

    def _hire(self) -> None:
        """Request as many workers as may run; a new worker waits for a free CPU of the cluster."""
        with self._lock:
            wanted = min(self.max_workers, len(self._waiting) + sum(len(one.held) for one in self._workers))
        while len(self._workers) < wanted:
            actor = self._actor.remote(self._timeout, self._start)
            self._workers.append(_Remote(actor, actor.ready.remote()))

    def _assign(self) -> None:
        """Give tasks to the workers that are ready, the least busy first."""
        while True:
            free = [one for one in self._workers if one.there and len(one.held) < _AHEAD]
            with self._lock:
                if not free or not self._waiting:
                    return
                task = self._waiting.popleft()
            if task.begin():
                worker = min(free, key=lambda one: len(one.held))
                worker.held[worker.actor.run.remote(task.payload)] = task

    def _collect(self) -> None:
        """Wait briefly for an answer from any worker, and pass on the answers that have arrived."""
        references = [ref for one in self._workers for ref in one.held]
        references += [one.starting for one in self._workers if not one.there]
        if not references:
            self._wake.wait(_POLL_S)
            self._wake.clear()
            return
        done, _ = self._ray.wait(references, num_returns=1, timeout=_POLL_S)
        for reference in done:
            for worker in list(self._workers):
                if reference is worker.starting or reference in worker.held:
                    self._answer(worker, reference)
        self._check_start()

    def _answer(self, worker: _Remote, reference: Any) -> None:
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._lose(worker)
            return
        except self._ray.exceptions.RayError as error:
            answer = ("broken", (str(error), None))
        if reference is worker.starting:
            worker.starting = None
            if answer is not None:
                self._break(answer[1])
            return
        kind, value = answer
        if kind == "broken":
            self._break(value)
        task = worker.held.pop(reference)
        if kind == "done":
            task.future.set_result(value)
        else:
            task.future.set_exception(self._exception(kind, value))

    def _exception(self, kind: str, value: Any) -> BaseException:
        if kind == "died":
            return WorkerDied(*value)
        if kind == "late":
            return TaskTimedOut(*value)
        if kind == "raised":
            assert isinstance(value, BaseException)
            return value
        assert self._broken is not None
        return self._broken

    def _lose(self, worker: _Remote) -> None:
        """Handle the loss of a worker's node: its tasks run again, before all others."""
        self._workers.remove(worker)
        for task in reversed(worker.held.values()):
            task.losses += 1
            if task.losses >= _LOSSES:
                task.future.set_exception(NodeLost())
                continue
            with self._lock:
                self._waiting.appendleft(task)

    def _check_start(self) -> None:
        late = time.monotonic() - START_TIMEOUT_S
        if self._workers and all(not one.there and one.since < late for one in self._workers):
            self._break(("no node of the Ray cluster has a free CPU", None))

    def _break(self, described: tuple[str, tuple[str, str | None] | None]) -> None:
        """Fail all waiting tasks, because no worker can start."""
        text, known = described
        broken = WorkerStartFailed(text)
        broken.__cause__ = None if known is None else BackendError(*known)
        with self._lock:
            self._broken = self._broken or broken
            while self._waiting:
                task = self._waiting.popleft()
                if task.begin():
                    task.future.set_exception(self._broken)


def _connected() -> tuple[Any, bool]:
    """Return Ray, connected, and whether this process must close the connection."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("--executor ray needs Ray", extra="ray") from error
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise BackendError(
            f"the Ray cluster cannot be used: {error}", "RAY_ADDRESS says where it is"
        ) from error
    return ray, True
