"""Running one side of the comparison in a child process: PyTorch unchanged, or changed by a package.

A package that changes PyTorch when it is imported changes it for the whole process, so that process can no
longer tell what PyTorch itself does. Therefore both sides run in child processes (:mod:`.child`), which send
back their reports. A call that ends its child process or never returns is a finding, too: another child
process continues after that call.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe
from typing import Any

from ..errors import GapsError
from .answers import Answer, Status, Trial
from .outcomes import Outcome, failed
from .surface import Api

CALL_SECONDS = 60.0
"""The longest time for one call; after that its child process is killed."""
START_SECONDS = 600.0
"""The longest time for a child process to import PyTorch and the package."""


@dataclass(frozen=True)
class Task:
    """The task of a child process: import ``package`` if there is one, then read and call ``apis``.

    ``attempts`` gives, by API name, the number of the made-up arguments that the reference side accepted.
    """

    apis: tuple[Api, ...]
    package: str = ""
    attempts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """The message that the package is imported; ``place`` is the device it uses for CUDA, empty if none."""

    place: str = ""


@dataclass(frozen=True)
class Failure:
    """The message that the package could not be imported."""

    message: str


@dataclass(frozen=True)
class Report:
    """A child process's report on one API; if it was not called, ``outcome`` and ``contract`` are None.

    ``attempt`` is the number of the made-up arguments of the call. ``contract`` is the trial of an API whose
    reference side cannot run here.
    """

    answer: Answer | None = None
    attempt: int = 0
    outcome: Outcome | None = None
    contract: Trial | None = None


def run_in_child(task: Task) -> tuple[Ready, dict[str, Report]]:
    """Return the report for each API of ``task``. Raises :class:`GapsError` if the import fails."""
    left = list(task.apis)
    found: dict[str, Report] = {}
    while True:
        with _Child(replace(task, apis=tuple(left))) as child:
            ready = child.ready()
            while left and (report := child.report()) is not None:
                found[left.pop(0).name] = report
            if not left:
                return ready, found
            found[left.pop(0).name] = Report(Answer(Status.MATCH), outcome=failed("no result", child.end()))


class _Child:
    """A process that runs :mod:`.child`."""

    def __init__(self, task: Task) -> None:
        self._package = task.package
        self._hangs = False
        self._connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the child
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.child", str(theirs.fileno())],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # no other package may change PyTorch
                },
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[theirs.fileno()],
            )
        self._connection.send(task)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._output.close()

    def ready(self) -> Ready:
        message = self._receive(START_SECONDS)
        if isinstance(message, Ready):
            return message
        what = f"the package {self._package}" if self._package else "PyTorch"
        reason = message.message if isinstance(message, Failure) else self.end()
        raise GapsError(
            f"{what} cannot be imported in a process of its own: {reason}",
            hint=f"make `python -c 'import {self._package or 'torch'}'` work first",
        )

    def report(self) -> Report | None:
        """Return the next report; None if the child process ended or a call took too long."""
        message = self._receive(CALL_SECONDS)
        return message if isinstance(message, Report) else None

    def end(self) -> str:
        """Return a text that says how the child process ended."""
        if self._hangs:
            return f"it did not return within {CALL_SECONDS:g} s"
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._output.seek(0)
        last = self._output.read().decode(errors="replace").strip().rpartition("\n")[2]
        return f"the process ended with {how}{': ' if last else ''}{last[:160]}"

    def _receive(self, seconds: float) -> Any:
        try:
            self._hangs = not self._connection.poll(seconds)
            return None if self._hangs else self._connection.recv()
        except (EOFError, OSError):
            return None


def connection_of(descriptor: str) -> Connection:
    """Return the child's end of the connection."""
    return Connection(int(descriptor))


def called(apis: Sequence[Api], reports: Mapping[str, Report]) -> dict[str, int]:
    """Return the attempts that succeeded, by API name; the other side is called with the same arguments."""
    found = {api.name: reports[api.name] for api in apis}
    return {name: one.attempt for name, one in found.items() if one.outcome and not one.outcome.exception}
