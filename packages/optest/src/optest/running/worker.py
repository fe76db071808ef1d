"""The process behind :class:`IsolatedExecutor`: takes tasks from a socket, sends back what they give.

It owns a session and process group, ends with its parent however that ends, and writes
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
"""Bytes after which the file that takes stderr starts anew."""
_TAIL_BYTES = 8192

_capturing: int | None = None
"""Where in the stderr file the present task started; None outside worker processes."""


def captured() -> str:
    """What the present task wrote to stdout and stderr so far; empty outside a worker process."""
    if _capturing is None:
        return ""
    _flush()
    return read_tail(2, _capturing)


def read_tail(file: int, start: int) -> str:
    """The end of what was written to ``file`` from ``start`` on."""
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
            return  # the parent is done; exit handlers run
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
    """Make what the parent's script defines loadable, as ``multiprocessing`` does.

    The mark keeps a script without ``if __name__ == "__main__"`` from starting workers here.
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
