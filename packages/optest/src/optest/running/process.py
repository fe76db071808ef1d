"""One worker process from its parent's side: start it, watch it, and end it with all that it started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from ..backends.process import signal_name
from .worker import read_tail

_MARK = "OPTEST_WORKER"
"""The environment variable that identifies a worker's descendants, even in other process groups."""
START_TIMEOUT_S = 600.0
"""Seconds that a process may take to start and to set up its driver."""
_STOP_S = 10.0
"""Seconds that a process gets to tear down its driver."""
_CODE = (
    "import sys; sys.path[:] = {path!r}; from optest.running.worker import main; main({channel}, {lifeline})"
)


@dataclass(slots=True, eq=False)
class Task:
    """One submitted call; ``started`` says whether a process has begun it."""

    future: Future[Any]
    payload: bytes
    started: bool = False
    begun: bool = False
    losses: int = 0

    def begin(self) -> bool:
        """Mark the task as running, so that it cannot be canceled; return whether it is still wanted."""
        if not self.begun:
            self.begun = self.future.set_running_or_notify_cancel()
        return self.begun

    def cancel(self) -> None:
        """Tell those who wait for the future that the task will not run or not finish."""
        if self.begun:
            self.future.set_exception(CancelledError())
        elif self.future.cancel():
            self.future.set_running_or_notify_cancel()


class WorkerProcess:
    """A process that runs tasks one after another; see :class:`IsolatedExecutor` for the arguments."""

    def __init__(
        self, timeout: float | None, start: Callable[[bool], None] | None, replaces_crashed: bool
    ) -> None:
        self.tasks: deque[Task] = deque()
        self.ready = False
        self.replaces_crashed = replaces_crashed
        self.mark = 0
        self.deadline: float | None = time.monotonic() + START_TIMEOUT_S
        start_payload = pickle.dumps((start, replaces_crashed))
        self._token = secrets.token_hex(8)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        flags = fcntl.fcntl(self._errors, fcntl.F_GETFL)
        fcntl.fcntl(self._errors, fcntl.F_SETFL, flags | os.O_APPEND)
        self.channel, theirs = Pipe()
        # Each process needs its own pipe: the pipe's open end decides which process gets the signal.
        lifeline, self._lifeline = os.pipe()
        code = _CODE.format(path=sys.path, channel=theirs.fileno(), lifeline=lifeline)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(theirs.fileno(), lifeline),
                env={**os.environ, _MARK: self._token},
                start_new_session=True,
            )
        except BaseException:
            self.channel.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        main = getattr(sys.modules["__main__"], "__file__", None) if b"__main__" in start_payload else None
        with contextlib.suppress(OSError):  # it died already; reading the channel will show it
            self.channel.send_bytes(pickle.dumps({"timeout": timeout, "main": main}))
            self.channel.send_bytes(start_payload)

    @property
    def held_bytes(self) -> int:
        return sum(len(one.payload) for one in self.tasks)

    def stderr_tail(self) -> str:
        """Return the end of the output of the current task or, before the first task, of the start."""
        return read_tail(self._errors.fileno(), self.mark)

    def stop_asking(self) -> None:
        """Close the channel, so that the process ends by itself when it is idle."""
        self.channel.close()

    def end(self, *, kill: bool, patience: float = _STOP_S) -> tuple[int | None, str | None]:
        """End the process and everything it started; return its exit code or the name of its signal.

        Without ``kill``, it gets ``patience`` seconds to end by itself.
        """
        self.channel.close()
        if not kill:
            self._let_end(patience)
        self._kill_group()
        code = self._process.wait()
        os.close(self._lifeline)
        _kill_marked(self._token)
        return (code, None) if code >= 0 else (None, signal_name(-code))

    def _let_end(self, patience: float) -> None:
        """Wait for the end without reaping the process, so that the number of its group is not reused."""
        limit = time.monotonic() + patience
        pause = 0.0005
        while time.monotonic() < limit:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.02)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _kill_marked(token: str) -> None:
    """Kill descendants that left the process group; without ``/proc``, none are found."""
    wanted = f"{_MARK}={token}".encode()
    for _ in range(3):  # a process that is being killed may be starting others
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
        if not found:
            return
