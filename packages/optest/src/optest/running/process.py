"""One worker process as its parent sees it: start it, watch it, end it and all that it started."""

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
"""The environment variable by which a worker's descendants are known, whatever group they moved to."""
START_TIMEOUT_S = 600.0
"""Seconds that a process may take to start and to set up its driver."""
_STOP_S = 10.0
"""Time for a process to tear its driver down."""
_CODE = (
    "import sys; sys.path[:] = {path!r}; from optest.running.worker import main; main({channel}, {lifeline})"
)


@dataclass(slots=True, eq=False)
class Task:
    """One submitted call; ``started``: a process has begun it."""

    future: Future[Any]
    payload: bytes
    started: bool = False
    begun: bool = False
    losses: int = 0

    def begin(self) -> bool:
        """Whether it is still wanted; from now on it cannot be cancelled from outside."""
        if not self.begun:
            self.begun = self.future.set_running_or_notify_cancel()
        return self.begun

    def cancel(self) -> None:
        """Whoever waits learns that it will not run, or not to its end."""
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
        # One for each process: who gets the signal is a property of the pipe's open end.
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
        with contextlib.suppress(OSError):  # it died already; the channel's end tells
            self.channel.send_bytes(pickle.dumps({"timeout": timeout, "main": main}))
            self.channel.send_bytes(start_payload)

    @property
    def held_bytes(self) -> int:
        return sum(len(one.payload) for one in self.tasks)

    def stderr_tail(self) -> str:
        """The end of what the task in hand wrote; of the whole start, before the first."""
        return read_tail(self._errors.fileno(), self.mark)

    def stop_asking(self) -> None:
        """Close the channel: an idle process ends by itself."""
        self.channel.close()

    def end(self, *, kill: bool, patience: float = _STOP_S) -> tuple[int | None, str | None]:
        """Make sure that nothing of it is left; its exit code or the name of its signal.

        Without ``kill`` it gets ``patience`` seconds to end by itself.
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
        """Wait without reaping, so that the process group's number stays its own."""
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
    """Kill descendants that left the process group; where there is no ``/proc``, none are found."""
    wanted = f"{_MARK}={token}".encode()
    for _ in range(3):  # what is being killed may be starting more
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
        if not found:
            return
