"""The driver interface: a class with ``run``, and with ``answer`` if it takes PyTorch's tensors.

``manager`` chooses the driver of a run; ``optest.core`` isolates its process and judges its results.
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
    """Raised by a driver that declines a case, which is then reported as unsupported, not as failed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ProgramFailed(Exception):
    """A program that a driver ran for a case failed.

    ``exit_code`` is its exit code, ``signal`` the name of the signal that ended it (``SIGSEGV``),
    ``timed_out`` is True if it was stopped at a time limit, and ``stderr_tail`` has the last lines that it
    wrote. The runner puts all of them into the record of the case.
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
        """Pickle with the attributes, because the exception is sent from the worker process to the runner."""
        return _failed, (self.message, self.exit_code, self.signal, self.timed_out, self.stderr_tail)


def _failed(
    message: str, exit_code: int | None, signal: str | None, timed_out: bool, stderr_tail: str
) -> ProgramFailed:
    return ProgramFailed(
        message, exit_code=exit_code, signal=signal, timed_out=timed_out, stderr_tail=stderr_tail
    )


@dataclass
class Answer:
    """A driver's answer to one call: ``outputs``, or the reason why there are none.

    ``unsupported``: why the backend declines the call. ``error``: the exception that it raised.
    ``fallback``: the parts of the call that did not run on the backend; a correct answer is then reported as
    a fallback. ``form``: native or composite, if the driver knows. ``seconds``: the duration of each part, by
    name.
    """

    outputs: Sequence[Any] | None = None
    unsupported: str = ""
    error: BaseException | None = None
    fallback: tuple[str, ...] = ()
    form: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def error_text(self) -> str:
        """The reason why there are no outputs, for a record."""
        return told(self.error).strip() if self.error else "the driver gave neither outputs nor an error"

    @property
    def fallback_text(self) -> str:
        """A text with the parts that did not run on the backend, for a record."""
        return f"ran in eager PyTorch: {', '.join(self.fallback)}"


class BackendDriver(ABC):
    """Runs cases on one backend.

    ``kind`` is the kind of device it runs on (``gpu``, ``npu``, …), ``name`` the name of the driver, and
    ``chips`` the chips it knows; a driver without chips accepts every chip. A driver that is not ``isolated``
    runs in optest's own process, so it must not be able to crash it.
    ``expectations`` is a TOML file of declared gaps (``optest.plan.expectations``).
    ``packages`` are distributions whose versions every run records, if they are installed.
    Instances must be picklable: each worker process gets a copy.
    """

    kind: str
    name: str
    chips: tuple[str, ...] = ()
    isolated: bool = True
    expectations: Path | None = None
    phases: ClassVar[tuple[str, ...]] = ("forward",)
    packages: tuple[str, ...] = ()
    settings: ClassVar[Mapping[str, Any] | None] = None
    """The fields that ``backend_config`` may have for the driver, as in a JSON Schema; None allows any."""
    not_identifying: ClassVar[frozenset[str]] = frozenset({"timeout"})
    """Settings in ``backend_config`` that do not identify what the driver runs on."""

    @abstractmethod
    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Return the outputs of ``case`` for ``inputs``, one array per output of its descriptor.

        Inputs have the case's shapes and dtypes and must only be read, except those in ``case.written``.
        Outputs keep the dtypes in which the backend returned them, because the comparator checks the dtypes,
        too. Raises :class:`Unsupported`, :class:`ProgramFailed`, or anything else for an error.
        """

    def setup(self) -> None:  # noqa: B027  # optional
        """Prepare a process, once before its first case; raise ``BackendError`` if nothing can run."""

    def teardown(self) -> None:  # noqa: B027  # optional
        """Clean up in a process, once after its last case, unless the process died."""

    def reset(self) -> None:  # noqa: B027  # optional
        """Bring the device back to a known state, after a crash or hang and before the next case."""

    def check(self, case: TestCase) -> None:  # noqa: B027  # optional
        """Raise :class:`UsageError` if the case has unusable settings; called before any case runs."""

    def identity(self, settings: Mapping[str, Any]) -> str:
        """Return a text that tells apart what the driver runs on: a firmware, a host, a board.

        Kind, name and chip need not be part of it. ``settings`` are those that the plan or the command line
        gives the driver for all cases. Results of runs with different identities are never combined. The
        default is a hash of the settings without ``not_identifying``, or empty if there are none. Called
        once, before :meth:`setup`.
        """
        found = hash_of_settings(settings, self.not_identifying)
        return found and f"settings {found}"

    def supports(self, case: TestCase) -> str | None:
        """Return why ``case`` cannot run here, or None. Must be cheap: inputs are made only afterwards."""
        if case.phase not in self.phases:
            return f"{self.name} runs the {' and '.join(self.phases)} phase only, not {case.phase}"
        return None


class CallDriver(BackendDriver):
    """A driver that also runs calls with PyTorch tensors, as suites of PyTorch's databases need."""

    @abstractmethod
    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """Return one :class:`Answer` per call, in order; an error in a call becomes part of its answer.

        Outputs are dense tensors or arrays. What was compiled for a call runs ``repeats`` times, and the
        answer has the outputs of all runs, one run after another. The tensors of a call must only be read,
        except those that ``call.writes`` names: run it on copies (``optest.torch.opinfo.calls.copied``).
        """

    def answer_in_turn(
        self, function: Callable[..., Any], turns: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> Answer:
        """Call one compiled ``function`` with the arguments of each turn, in order.

        This is for drivers that compile a function once and call it with several sizes. ``outputs`` of the
        answer has one result per turn, exactly as it was returned: views of arguments stay views. The
        arguments are already copies. An exception that this raises counts as an error of the calls.
        """
        return Answer(unsupported=f"{self.name} does not call one compiled function with several sizes")
