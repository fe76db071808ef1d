"""Every exception that optest raises on purpose, with the exit code it stands for.

Each message says what was asked, what was found and what is allowed; ``hint`` is
the next step. Their texts are part of the interface: tests read them. Not here:
``backends.driver.Unsupported``, with which a driver declines a case.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .names import listing, near_misses


def text_of(error: BaseException) -> str:
    """The message of an exception from foreign code; its ``__str__`` may raise, too."""
    try:
        return str(error)
    except BaseException as worse:  # noqa: BLE001  # how it failed is all there is to say
        return f"(its text cannot be read: that raises {type(worse).__name__})"


def told(error: BaseException) -> str:
    """``Type: message`` of an exception of somebody else's code."""
    return f"{type(error).__name__}: {text_of(error)}"


class OptestError(Exception):
    """Base class. ``message`` is the whole finding, ``hint`` what to do next."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\n  next: {hint}")


class UsageError(OptestError):
    """What was asked for is impossible: a flag, a name, a value, a file's content."""


class UnknownName(UsageError):
    """A name that is not there; the message lists those that come close, or all of a few."""

    def __init__(self, what: str, found: str, names: Iterable[str], hint: str | None = None) -> None:
        known = list(names)
        self.found = found
        self.near = near_misses(found, known)
        if self.near:
            rest = f"did you mean {listing(self.near, last='or')}?"
        elif known:
            rest = f"there are {listing(known)}"
        else:
            rest = "there are none"
        super().__init__(f"unknown {what} {found!r}: {rest}", hint)


class ShapeError(UsageError):
    """Shapes that an operator cannot take, as its shape rule says."""


class AttributeMismatch(UsageError):
    """An attribute that an operator does not have, lacks, or has with another type or range."""


class PlanError(UsageError):
    """A plan (or expectation) file that cannot be used, with the place of the mistake.

    ``line`` counts from 1 (None: the whole file), ``key`` is the path inside the
    document like ``cases[2].dtypes``, ``allowed`` says what would be right.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path,
        line: int | None = None,
        key: str = "",
        found: Any = None,
        allowed: str = "",
        hint: str | None = None,
    ) -> None:
        self.problem, self.file, self.line = problem, str(file), line
        self.key, self.found, self.allowed = key, found, allowed
        where = self.file if line is None else f"{self.file}:{line}"
        parts = [f"{where}: {key}: {problem}" if key else f"{where}: {problem}"]
        if found is not None:
            parts.append(f"found: {found!r}")
        if allowed:
            parts.append(f"allowed: {allowed}")
        super().__init__("\n  ".join(parts), hint)


class RegistrationError(UsageError):
    """A descriptor, driver or reporter that cannot be registered, extended or overridden."""


class EnvironmentError_(OptestError):
    """The machine is not ready: a missing package, device, file or permission."""

    exit_code = 3


class MissingExtra(EnvironmentError_):
    """A feature needs a package that is not installed; ``extra`` names the extra that brings it."""

    def __init__(self, message: str, *, extra: str) -> None:
        self.extra = extra
        super().__init__(message, f"pip install 'optest[{extra}]'")


class InputWritten(OptestError):
    """Somebody wrote into inputs that are only to be read; the message names whom."""

    exit_code = 1


class MemoryKept(OptestError):
    """A device counts memory as in use that nothing holds any more."""

    exit_code = 1


class ValuesChanged(OptestError):
    """A tensor is not the same after a way to a device and back."""

    exit_code = 1


class BackendError(EnvironmentError_):
    """A backend could not be selected or set up."""


class LedgerError(EnvironmentError_):
    """The result ledger cannot be read or written."""


class ReportError(EnvironmentError_):
    """A report cannot be written, or does not agree with its schema."""
