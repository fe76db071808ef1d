"""All exceptions that optest raises on purpose, each with its exit code.

A message says what was requested, what was found and what is allowed; ``hint`` is
the next step. The texts are part of the interface, and tests check them. Not here:
``backends.driver.Unsupported``, with which a driver declines a case.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .names import listing, near_misses


def text_of(error: BaseException) -> str:
    """Return the message of an exception from foreign code, even if its ``__str__`` raises."""
    try:
        return str(error)
    except BaseException as worse:  # noqa: BLE001  # only its type can be reported
        return f"(its text cannot be read: that raises {type(worse).__name__})"


def told(error: BaseException) -> str:
    """Return ``Type: message`` for an exception from foreign code."""
    return f"{type(error).__name__}: {text_of(error)}"


class OptestError(Exception):
    """The base class; ``message`` says what is wrong, ``hint`` what to do next."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\n  next: {hint}")


class UsageError(OptestError):
    """The request is not possible: a flag, name, value or file content is wrong."""


class UnknownName(UsageError):
    """An unknown name; the message lists similar names, or all of them if there are few."""

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
    """Shapes that the operator's shape rule does not allow."""


class AttributeMismatch(UsageError):
    """An attribute that is unknown to an operator, missing, or outside its type or range."""


class PlanError(UsageError):
    """A plan or expectation file that cannot be used; says where the mistake is.

    ``line`` counts from 1 (None: the whole file), ``key`` is a path in the document
    such as ``cases[2].dtypes``, and ``allowed`` says what would be valid.
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
    """Code wrote into inputs that it may only read; the message says which code."""

    exit_code = 1


class MemoryKept(OptestError):
    """A device still counts memory as in use after everything in it was dropped."""

    exit_code = 1


class ValuesChanged(OptestError):
    """A tensor changed when it was copied to a device and back."""

    exit_code = 1


class BackendError(EnvironmentError_):
    """A backend could not be selected or set up."""


class LedgerError(EnvironmentError_):
    """The ledger cannot be read or written."""


class ReportError(EnvironmentError_):
    """A report cannot be written, or does not match its schema."""
