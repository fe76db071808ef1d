"""The process behind :class:`IsolatedExecutor`: receives tasks on a socket and sends back the results.

It has its own session and process group, and ends with its parent, however the parent ends. It writes
stdout and stderr to a file whose end the parent reads. Not here: what a task is.
"""

from __future__ import annotations

import faulthandler
import fcntl
import multiprocessing
import multiprocessing.spawn
import os
import pickle
import select
import signal
import sys
from concurrent.futures import Executor
from multiprocessing.connection import Connection
from typing import Any

from ..errors import told

READY, FAILED_START, STARTED, DONE, RAISED = b"r", b"f", b"s", b"d", b"x"
"""The first byte of a message to the parent; the rest is a pickle, or a position in the stderr file."""

MOST_STDERR = 1 << 20
"""The size in bytes at which the file for stderr is emptied before the next task."""
_TAIL_BYTES = 8192

_capturing: int | None = None
"""The position in the stderr file where the current task started; None outside worker processes."""


def captured() -> str:
    """Return what the current task wrote to stdout and stderr so far; empty outside a worker process."""
    if _capturing is None:
        return ""
    _flush()
    return read_tail(2, _capturing)


def read_tail(file: int, start: int) -> str:
    """Return the last part of what was written to ``file`` after ``start``."""
    size = os.fstat(file).st_size
    start = max(start if start <= size else 0, size - _TAIL_BYTES)
    return os.pread(file, size - start, start).decode("utf-8", "replace")


def main(channel: int, lifeline: int) -> None:
    """Serve until the parent closes the channel."""
    _end_with_parent(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    faulthandler.enable()
    _serve(Connection(channel))


def _end_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process group when the parent's end of a pipe closes.

    That works even while the parent is killed and this process hangs with the GIL held.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):  # the parent ended before this was in place
        os.killpg(0, signal.SIGKILL)


def _serve(channel: Connection) -> None:
    global _capturing
    try:
        settings = pickle.loads(channel.recv_bytes())
        if settings["main"]:
            _import_main(settings["main"])
        start, argument = pickle.loads(channel.recv_bytes())
        if start is not None:
            start(argument)
    except EOFError:
        return
    except BaseException as error:
        channel.send_bytes(FAILED_START + _pickled_error(error))
        raise
    channel.send_bytes(READY)
    timeout: float | None = settings["timeout"]
    while True:
        try:
            payload = channel.recv_bytes()
        except (EOFError, ConnectionResetError):
            return  # the parent is done; the exit handlers run next
        if os.fstat(2).st_size > MOST_STDERR:
            os.ftruncate(2, 0)
        _capturing = os.fstat(2).st_size
        channel.send_bytes(STARTED + str(_capturing).encode())
        if timeout is not None:  # the stack of a hang goes to stderr; the parent does the killing
            faulthandler.dump_traceback_later(timeout)
        try:
            function, args, kwargs = pickle.loads(payload)
            answer = DONE + pickle.dumps(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  # whatever a task raises is its answer
            answer = RAISED + _pickled_error(error)
        finally:
            faulthandler.cancel_dump_traceback_later()
        _flush()
        channel.send_bytes(answer)


def _import_main(path: str) -> None:
    """Import the parent's script, as ``multiprocessing`` does, so that what it defines can be unpickled.

    ``_inheriting`` keeps a script without ``if __name__ == "__main__"`` from starting workers here.
    """
    process: Any = multiprocessing.current_process()
    process._inheriting = True
    try:
        multiprocessing.spawn.prepare({"init_main_from_path": path})
    finally:
        del process._inheriting


def refuse_inside_import(executor: type[Executor]) -> None:
    """Raise ``RuntimeError`` while a worker imports its parent's script."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            f"{executor.__name__} was started while a worker process imported the main script; "
            'put the code that runs tests under `if __name__ == "__main__":`'
        )


def _pickled_error(error: BaseException) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except BaseException:  # noqa: BLE001  # its own __reduce__ may raise anything
        return pickle.dumps(RuntimeError(told(error)))
    return data


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
