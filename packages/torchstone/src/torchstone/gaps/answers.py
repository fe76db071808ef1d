"""The words of the comparison: what a provider says of an API, and what is then found to be a gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from .surface import Api


class Status(StrEnum):
    """What becomes of one of PyTorch's APIs."""

    MATCH = "match"
    """Nothing has to be done, and nothing is: the same object, the same behavior."""
    WRAPS = "wraps"
    """The original is called, with arguments or results mapped."""
    MODIFIED = "modified"
    """It does something else, as documented."""
    PARTIAL = "partial"
    """It works for some parameters, overloads, dtypes or devices."""
    STUB = "stub"
    """It stands there and does nothing, answers with a constant, or (loud) raises."""
    ABSENT = "absent"
    """It is not there, or does what it does without the provider."""
    DELIBERATE = "deliberate"
    """It is left as it is, which does not work, for a reason."""


class GapKind(StrEnum):
    """What sort of gap."""

    SIGNATURE = "signature"
    UNPATCHED = "unpatched"
    BEHAVIOUR = "behaviour"
    TARGET = "target limitation"
    """What the device that the work goes to cannot do."""
    REFINEMENT = "refinement"
    """It works; a device-specific path of PyTorch's is worth a look."""


@dataclass(frozen=True)
class Answer:
    """What a provider has for one API.

    ``replacement`` is the object that stands in its place, ``original`` the one it was made for; None where
    there is none of its own. ``note`` explains anything but match and wraps. ``missing`` lists parameters,
    overloads, dtypes or devices of a partial one. ``loud``: what is not there is refused with an exception.
    ``signature`` says how the replacement's signature differs, where the objects are in another process.
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
    """What running both sides of one API showed: ``calls`` were made, ``differences`` found.

    ``calls`` is 0 where no arguments were found that the reference side takes.
    """

    calls: int = 0
    differences: tuple[str, ...] = ()
    silent: bool = True
    """False if every difference is an exception."""


class Provider(Protocol):
    """Something that offers (part of) PyTorch's API."""

    @property
    def name(self) -> str:
        """As on the command line, and in the head of the log."""

    @property
    def scope(self) -> Sequence[str]:
        """The namespaces that it answers for, as :func:`~.surface.read_surface` takes them."""

    @property
    def watched(self) -> str | None:
        """The device whose conditions in PyTorch's own source are worth an entry; None for no device's."""

    @property
    def compared(self) -> str:
        """One sentence: what runs on which side of a trial."""

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        """What it has for each API, by name; those where it does not claim to have anything are left out."""

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        """Runs both sides, name by name; an API that cannot be tried is left out."""


@dataclass(frozen=True)
class Gap:
    """One difference: ``explanation`` is the provider's own note, empty where it has none."""

    api: Api
    kind: GapKind
    description: str
    loud: bool = False
    explanation: str = ""


@dataclass(frozen=True)
class Finding:
    """What was found for one API."""

    api: Api
    answer: Answer
    trial: Trial | None
    gaps: tuple[Gap, ...] = ()
    status: Status = field(default=Status.MATCH)
