"""What a backend is to optest: a class with ``run``, and with ``answer`` if it takes PyTorch's tensors.

Not here: which driver a run gets (``manager``) and how its process is isolated and
its results are judged (``optest.core``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ..driver_settings import hash_of_settings
from ..errors import told

if TYPE_CHECKING:
    from ..core.case import TestCase
    from ..torch.opinfo.calls import Call


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


@dataclass
class Answer:
    """What a driver makes of one call: ``outputs``, or why there are none.

    ``unsupported``: the backend declines. ``error``: what it raised. ``fallback``: what of
    it ran elsewhere than on the backend; a right answer is then reported as a fallback.
    ``form``: native or composite, where the driver knows. ``seconds``: how long its parts
    took, by their names.
    """

    outputs: Sequence[Any] | None = None
    unsupported: str = ""
    error: BaseException | None = None
    fallback: tuple[str, ...] = ()
    form: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def error_text(self) -> str:
        """The reason for a record without outputs."""
        return told(self.error).strip() if self.error else "the driver gave neither outputs nor an error"

    @property
    def fallback_text(self) -> str:
        """What ran elsewhere, for a record."""
        return f"ran in eager PyTorch: {', '.join(self.fallback)}"


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
    settings: ClassVar[Mapping[str, Any] | None] = None
    """The fields that ``backend_config`` may have for the driver, as in a JSON Schema; None for any."""
    not_identifying: ClassVar[frozenset[str]] = frozenset({"timeout"})
    """Settings in ``backend_config`` that do not say what the driver runs on."""

    @abstractmethod
    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The outputs of ``case`` for ``inputs``, one array per output of its descriptor.

        Inputs have the case's shapes and dtypes and must only be read, but for
        ``case.written``. Outputs are what the backend gave, in its own dtypes: the comparator
        checks them too. Raises :class:`Unsupported`, :class:`ProgramFailed`, or anything else for
        an error.
        """

    def setup(self) -> None:  # noqa: B027  # optional
        """Called once in each process before its first case; raises ``BackendError`` if nothing can run."""

    def teardown(self) -> None:  # noqa: B027  # optional
        """Called once in each process after its last case, unless the process died."""

    def reset(self) -> None:  # noqa: B027  # optional
        """Called after a crash or hang, before the next case: bring the device back to a known state."""

    def check(self, case: TestCase) -> None:  # noqa: B027  # optional
        """Raise :class:`UsageError` if the case has unusable settings; called before any case runs."""

    def identity(self, settings: Mapping[str, Any]) -> str:
        """What the driver runs on, beside its kind, name and chip: a firmware, a host, a board.

        ``settings`` are those that the plan, or the command line, gives the driver for every case.
        Results of runs with different answers are never put together. By default the settings,
        as a hash, but for ``not_identifying``; empty where there are none. Called once, before
        :meth:`setup`.
        """
        found = hash_of_settings(settings, self.not_identifying)
        return found and f"settings {found}"

    def supports(self, case: TestCase) -> str | None:
        """Why ``case`` cannot run here; None if it can. Asked before inputs are made; must be cheap."""
        if case.phase not in self.phases:
            return f"{self.name} runs the {' and '.join(self.phases)} phase only, not {case.phase}"
        return None


class CallDriver(BackendDriver):
    """A driver that also answers calls of PyTorch's tensors: suites over PyTorch's databases run on it."""

    @abstractmethod
    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """One :class:`Answer` per call, in their order; nothing is raised for what a call does.

        Outputs are dense tensors or arrays. With ``repeats`` what was compiled for a call runs
        that often, and an answer has the outputs of all runs, one run after another. The
        tensors of a call must only be read, but for those that ``call.writes`` names: run it
        on copies (``optest.torch.opinfo.calls.copied``).
        """

    def answer_in_turn(
        self, function: Callable[..., Any], turns: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> Answer:
        """What one compiled ``function`` returns for the arguments of each turn, called in their order.

        For drivers that compile a function once and call it with other sizes. ``outputs`` has one
        result per turn, as it was returned: views of arguments stay views. The arguments are copies
        already. What this raises is an error of the calls.
        """
        return Answer(unsupported=f"{self.name} does not call one compiled function with several sizes")
