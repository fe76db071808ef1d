"""One side of the comparison in a process of its own: PyTorch as it is, or as a package leaves it.

A package that changes PyTorch when it is imported changes it for the whole process, so that nothing in that
process can still say what PyTorch itself does. Both sides therefore run in children (:mod:`.child`) that this
process starts, and send back what they found. A call that ends its child, or never returns, is a finding
too: the next child goes on after it.
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
"""How long one call may take before its child is ended."""
START_SECONDS = 600.0
"""How long a child may take to import PyTorch and the package."""


@dataclass(frozen=True)
class Task:
    """What a child is to do: read and call ``apis``, after importing ``package`` if there is one.

    ``attempts`` says for each API which of the arguments made up for it the reference side took.
    """

    apis: tuple[Api, ...]
    package: str = ""
    attempts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """The package is imported; ``place`` is where what it calls CUDA is, empty if it offers no CUDA."""

    place: str = ""


@dataclass(frozen=True)
class Failure:
    """The package could not be imported."""

    message: str


@dataclass(frozen=True)
class Report:
    """What a child found for one API; an API that was not called has neither ``outcome`` nor ``contract``.

    ``attempt`` numbers the arguments of the call. ``contract`` is the trial of an API whose own side cannot
    run here.
    """

    answer: Answer | None = None
    attempt: int = 0
    outcome: Outcome | None = None
    contract: Trial | None = None


def run_in_child(task: Task) -> tuple[Ready, dict[str, Report]]:
    """The report for each API of ``task``. Raises :class:`GapsError` where the package cannot be imported."""
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
                    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # only what is asked for may touch PyTorch
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
        """The next report; None where the child ended or a call took too long."""
        message = self._receive(CALL_SECONDS)
        return message if isinstance(message, Report) else None

    def end(self) -> str:
        """How the child ended, in words."""
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
    """The child's end of the connection."""
    return Connection(int(descriptor))


def called(apis: Sequence[Api], reports: Mapping[str, Report]) -> dict[str, int]:
    """The attempts that succeeded, by name: what the other side is to be called with."""
    found = {api.name: reports[api.name] for api in apis}
    return {name: one.attempt for name, one in found.items() if one.outcome and not one.outcome.exception}
