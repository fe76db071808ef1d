"""The types of the comparison: a provider's answer for an API, and the gaps that are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from .surface import Api


class Status(StrEnum):
    """How a provider treats one of PyTorch's APIs."""

    MATCH = "match"
    """The API needs no change: it is the same object with the same behavior."""
    WRAPS = "wraps"
    """The original is called, with arguments or results mapped."""
    MODIFIED = "modified"
    """The API behaves differently, as documented."""
    PARTIAL = "partial"
    """The API works for some parameters, overloads, dtypes or devices only."""
    STUB = "stub"
    """The API exists, but does nothing, returns a constant, or (loud) raises."""
    ABSENT = "absent"
    """The API is missing, or it does the same as without the provider."""
    DELIBERATE = "deliberate"
    """The API is left unchanged, for a reason, although it does not work."""


class GapKind(StrEnum):
    """The kind of a gap."""

    SIGNATURE = "signature"
    UNPATCHED = "unpatched"
    BEHAVIOUR = "behaviour"
    TARGET = "target limitation"
    """The target device cannot do this."""
    REFINEMENT = "refinement"
    """The API works, but PyTorch has a device-specific path for it that is worth a look."""


@dataclass(frozen=True)
class Answer:
    """A provider's answer for one API.

    ``replacement`` is the object that replaces the API, and ``original`` the object that it replaces; both
    are None if the provider has no object of its own. ``note`` explains any status but match and wraps.
    ``missing`` lists the parameters, overloads, dtypes or devices that a partial API lacks.
    ``loud``: whatever is missing is refused with an exception. ``signature`` lists the differences of the
    replacement's signature, if the objects themselves are in another process.
    """

    status: Status
    equivalent: str = ""
    note: str = ""
    original: Any = None
    replacement: Any = None
    missing: tuple[str, ...] = ()
    loud: bool = False
    signature: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """The result of running both sides of one API: the number of ``calls``, and the ``differences`` found.

    ``calls`` is 0 if no arguments were found that the reference side accepts.
    """

    calls: int = 0
    differences: tuple[str, ...] = ()
    silent: bool = True
    """False if every difference is an exception."""


class Provider(Protocol):
    """Anything that offers PyTorch's API or a part of it."""

    @property
    def name(self) -> str:
        """The provider's name on the command line and in the head of the log."""

    @property
    def scope(self) -> Sequence[str]:
        """The namespaces that the provider covers, in the form that :func:`~.surface.read_surface` takes."""

    @property
    def watched(self) -> str | None:
        """The device for which conditions in PyTorch's own source get an entry; None for no device."""

    @property
    def compared(self) -> str:
        """One sentence that says what runs on each side of a trial."""

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        """Return the answer for each API, by name; APIs that the provider does not cover are left out."""

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        """Run both sides of each API and return the trials by name, without APIs that cannot be tried."""


@dataclass(frozen=True)
class Gap:
    """One difference; ``explanation`` is the provider's own note about it, or empty."""

    api: Api
    kind: GapKind
    description: str
    loud: bool = False
    explanation: str = ""


@dataclass(frozen=True)
class Finding:
    """The result of the comparison for one API."""

    api: Api
    answer: Answer
    trial: Trial | None
    gaps: tuple[Gap, ...] = ()
    status: Status = field(default=Status.MATCH)
