"""What a backend is to optest: a class with ``run``.

Not here: which driver a run gets (``manager``) and how its process is isolated and
its results are judged (``optest.core``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..core.case import TestCase


class Unsupported(Exception):
    """Raised by a driver that declines a case: the case is reported as unsupported, not as failed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ProgramFailed(Exception):
    """A program that a driver ran for a case failed.

    ``exit_code`` is what it exited with, ``signal`` the name of the signal that ended it
    (``SIGSEGV``), ``timed_out`` says that it was stopped; ``stderr_tail`` has the last
    lines it wrote. The runner puts them into the case's record.
    """

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        timed_out: bool = False,
        stderr_tail: str = "",
    ) -> None:
        self.message = message
        self.exit_code, self.signal = exit_code, signal
        self.timed_out, self.stderr_tail = timed_out, stderr_tail
        super().__init__(message)

    def __reduce__(self) -> Any:
        """Pickled with its attributes: it crosses from the worker's process to the runner's."""
        return _failed, (self.message, self.exit_code, self.signal, self.timed_out, self.stderr_tail)


def _failed(
    message: str, exit_code: int | None, signal: str | None, timed_out: bool, stderr_tail: str
) -> ProgramFailed:
    return ProgramFailed(
        message, exit_code=exit_code, signal=signal, timed_out=timed_out, stderr_tail=stderr_tail
    )


class BackendDriver(ABC):
    """Runs cases on one backend.

    ``kind`` says what it runs on (``gpu``, ``npu``, …), ``name`` which driver it is,
    ``chips`` which chips it knows; without any it takes every chip. Drivers that are
    not ``isolated`` run in optest's own process: only those that cannot crash it.
    ``expectations`` is a TOML file of declared gaps (``optest.plan.expectations``).
    ``packages`` are distributions whose versions every run records, those that are installed.
    Instances must pickle: worker processes get a copy each.
    """

    kind: str
    name: str
    chips: tuple[str, ...] = ()
    isolated: bool = True
    expectations: Path | None = None
    phases: ClassVar[tuple[str, ...]] = ("forward",)
    packages: tuple[str, ...] = ()

    @abstractmethod
    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The outputs of ``case`` for ``inputs``, one array per output of its descriptor.

        Inputs have the case's shapes and dtypes and are the driver's to change. Outputs
        are what the backend gave, in its own dtypes: the comparator checks them too.
        Raises :class:`Unsupported`, :class:`ProgramFailed`, or anything else for an error.
        """

    def setup(self) -> None:  # noqa: B027  # optional
        """Called once in each process before its first case; raises ``BackendError`` if nothing can run."""

    def teardown(self) -> None:  # noqa: B027  # optional
        """Called once in each process after its last case, unless the process died."""

    def reset(self) -> None:  # noqa: B027  # optional
        """Called after a crash or hang, before the next case: bring the device back to a known state."""

    def check(self, case: TestCase) -> None:  # noqa: B027  # optional
        """Raise :class:`UsageError` for a case whose settings cannot be used; asked before any case runs."""

    def supports(self, case: TestCase) -> str | None:
        """Why ``case`` cannot run here; None if it can. Asked before inputs are made; must be cheap."""
        if case.phase not in self.phases:
            return f"{self.name} runs the {' and '.join(self.phases)} phase only, not {case.phase}"
        return None
