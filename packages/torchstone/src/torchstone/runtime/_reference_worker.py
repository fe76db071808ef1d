"""The reference engine's child process: it runs the programs that it gets until the pipe closes.

The StableHLO interpreter aborts its process if a program has something that it does
not support. So each request runs in a fork of this process, and after a crash this
process need not be restarted. :mod:`.reference` starts it with the file descriptors of
two pipes. A request is the program, a list of array headers and the arrays' bytes. An
answer is the same without the program, or the text of an error.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy

Arrays = Sequence[numpy.ndarray[Any, Any]]


class RemoteError(Exception):
    """Raised if a request failed on the other side of the pipe."""


def send_arrays(pipe: Connection, arrays: Arrays) -> None:
    """Write ``arrays``, of NumPy's own dtypes, to ``pipe``."""
    pipe.send_bytes(json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode())
    for array in arrays:
        pipe.send_bytes(numpy.ascontiguousarray(array).tobytes())


def receive_arrays(pipe: Connection) -> list[numpy.ndarray[Any, Any]]:
    """Read arrays that :func:`send_arrays` wrote; raise :class:`RemoteError` for the text of an error."""
    header = json.loads(pipe.recv_bytes())
    if isinstance(header, str):
        raise RemoteError(header)
    return [numpy.frombuffer(pipe.recv_bytes(), dtype).reshape(shape) for dtype, shape in header]


def serve(requests: Connection, answers: Connection) -> None:
    """Answer requests until the other end closes the pipe."""
    from . import _interpreter_programs  # loaded once, before the first fork

    while True:
        try:
            program = requests.recv_bytes()
        except EOFError:
            return
        arrays = receive_arrays(requests)
        fork = os.fork()
        if fork == 0:
            send_arrays(answers, _interpreter_programs.interpret(program, arrays))
            os._exit(0)  # an exception ends the fork as well, with a traceback
        status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        if status:
            ending = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            answers.send_bytes(json.dumps(f"the StableHLO interpreter crashed ({ending})").encode())
