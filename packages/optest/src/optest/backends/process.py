"""Running programs for drivers: in their own process groups, with a time limit, leaving nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ..errors import BackendError
from .driver import ProgramFailed

logger = logging.getLogger(__name__)

MOST_OUTPUT = 64 << 20
"""The bytes that a program may write to stdout and stderr before it is killed."""
TAIL_LINES = 20
TAIL_BYTES = 8192
_LOOK_S = 0.5
"""The seconds between two checks of the size of the output."""
_LATE = "did not end within"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def run_program(
    command: Sequence[str], *, workdir: Path, env: Mapping[str, str], timeout: float | None
) -> str:
    """Run ``command`` to its end; return the last lines that it wrote, for messages.

    Every process that it started is gone afterwards, even one in a process group of its own: processes that
    are left are killed, and a warning names them. Raises :class:`ProgramFailed` if the program exits with a
    code other than 0, dies of a signal, or is killed after ``timeout`` seconds or for too much output, and
    :class:`BackendError` if it cannot be started.
    """
    text = shlex.join(command)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _adopting() as known:
        # Files, not pipes: a process left behind with a pipe open would make us wait for its end.
        try:
            process = subprocess.Popen(
                command,
                cwd=workdir,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            raise BackendError(
                f"the command {text} cannot be started in {workdir}: {error.strerror}: {error.filename}"
            ) from None
        stopped = ""
        try:
            stopped = _wait(process, timeout, out, err)
        finally:
            left = _kill_rest(process, known)
        tail = _tail(err) or _tail(out)
        if left and not stopped:
            logger.warning("%s left %s behind; killed", text, ", ".join(left))
    if stopped:
        message = f"the command {text} {stopped} and was killed"
        raise ProgramFailed(message, timed_out=stopped.startswith(_LATE), stderr_tail=tail)
    code = process.returncode
    if code < 0:
        name = signal_name(-code)
        raise ProgramFailed(f"the command {text} died of {name}", signal=name, stderr_tail=tail)
    if code:
        raise ProgramFailed(f"the command {text} exited with {code}", exit_code=code, stderr_tail=tail)
    return tail


def _wait(process: subprocess.Popen[bytes], timeout: float | None, *files: BinaryIO) -> str:
    """Wait for the end of the program; return why it must be killed before that, or an empty text."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        try:
            process.wait(max(0.0, min(_LOOK_S, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                return f"{_LATE} {timeout:g} s"
            if sum(os.fstat(file.fileno()).st_size for file in files) > MOST_OUTPUT:
                return f"wrote more than {MOST_OUTPUT >> 20} MiB to stdout and stderr"
        else:
            return ""


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGSEGV`` for 11, or ``signal N`` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill_rest(process: subprocess.Popen[bytes], known: frozenset[int]) -> list[str]:
    """Kill the program, if it still runs, and every process it started; return those that outlived it."""
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    left: dict[int, str] = {}
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:  # orphans come to us one generation at a time
        orphans = _children() - known
        if not orphans:
            break
        for pid in orphans:
            name = _name(pid)
            if name:
                left.setdefault(pid, f"{name} (process {pid})")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)
    return [] if running else list(left.values())


@contextlib.contextmanager
def _adopting() -> Iterator[frozenset[int]]:
    """Make orphaned processes children of this one during the block; yield the children that exist already.

    This works on Linux only; elsewhere only the process group can be killed.
    """
    before = _children()
    adopted = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield before
    finally:
        if adopted:
            _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _prctl(option: int, value: int) -> bool:
    try:
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except (AttributeError, OSError):
        return False


def _die_with_parent() -> None:
    """Make the program, in whose process this runs, die with the worker, which may be killed at any time."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _children() -> frozenset[int]:
    """Return the child processes of this process, as Linux lists them."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in file.read_text().split()}
    return frozenset(found)


def _name(pid: int) -> str:
    """Return the name of the program that a process runs; empty if the process is dead."""
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return ""
    return "" if rest.split()[0] in "ZX" else head.partition("(")[2]


def _tail(file: BinaryIO) -> str:
    """Return the last lines of a file that a program wrote."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:]).strip()
