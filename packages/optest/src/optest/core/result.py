"""The result of a case: statuses, the record of one case, and the facts about a run.

The runner fills these in; nothing here judges anything. Reports, the ledger and the journal read and write
their dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from json import JSONEncoder
from typing import Any

from ..text import writable
from .case import BackendTarget
from .origin import Origin


class Status(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    MISMATCH = "mismatch"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    FALLBACK = "fallback"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"

    @property
    def failed(self) -> bool:
        """Whether this status makes the run fail."""
        return self in FAILURES


FAILURES = frozenset({Status.MISMATCH, Status.ERROR, Status.CRASHED, Status.TIMED_OUT, Status.XPASSED})
"""The statuses that make the exit code 1."""


@dataclass(frozen=True)
class CaseResult:
    """The record of one case, which is JSON-safe and the same wherever it is read.

    ``backend`` has ``kind``, ``name``, ``chip`` and, if there is one, ``config``. ``comparisons`` has one
    ``Comparison.to_dict()`` per output. ``signal`` is the name of the signal that ended the process
    (``SIGSEGV``), ``duration_s`` the time that the driver took, and ``rerun`` the command that runs exactly
    this case. ``origin`` is its place in one of PyTorch's databases. ``inputs`` is a hash of the inputs'
    values, and ``settings`` a hash of the driver's settings for the case; both are empty if unknown.
    """

    case_id: str
    op: str
    category: str
    dtypes: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any]
    phase: str
    seed: int
    backend: Mapping[str, str | None]
    status: Status
    reason: str = ""
    comparisons: tuple[Mapping[str, Any], ...] = ()
    duration_s: float = 0.0
    stderr_tail: str = ""
    exit_code: int | None = None
    signal: str | None = None
    attempts: int = 1
    flaky: bool = False
    rerun: str = ""
    origin: Origin | None = None
    inputs: str = ""
    settings: str = ""

    def __post_init__(self) -> None:
        for name in ("reason", "stderr_tail", "rerun"):
            object.__setattr__(self, name, writable(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain dictionaries and lists."""
        return {
            **{name: getattr(self, name) for name in _FIELDS},
            "dtypes": list(self.dtypes),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "attributes": {name: _plain(value) for name, value in self.attributes.items()},
            "backend": dict(self.backend),
            "status": self.status.value,
            "comparisons": [dict(one) for one in self.comparisons],
            "origin": None if self.origin is None else self.origin.to_dict(),
        }

    @cached_property
    def json(self) -> str:
        """:meth:`to_dict` as one line of Python's JSON, in which infinite attributes are ``Infinity``."""
        return _ENCODE(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CaseResult:
        """Make a record from a dictionary of :meth:`to_dict`; unknown keys are ignored."""
        known = {name: data[name] for name in _FIELDS if name in data}
        return cls(
            **{
                **known,
                "dtypes": tuple(data["dtypes"]),
                "shapes": {name: tuple(shape) for name, shape in data["shapes"].items()},
                "attributes": {name: _frozen(value) for name, value in data["attributes"].items()},
                "status": Status(data["status"]),
                "comparisons": tuple(data.get("comparisons", ())),
                "origin": None if data.get("origin") is None else Origin.from_dict(data["origin"]),
            }
        )


@dataclass
class RunInfo:
    """The facts about a run that are known before its first case.

    ``started`` is in ISO 8601 with a time zone. ``planned`` is the number of cases, if known.
    """

    run_id: str
    started: str
    version: str
    command_line: str
    backend: Mapping[str, str | None]
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    planned: int | None = None

    @property
    def target(self) -> str:
        """The target of the run; runs with different targets are never combined."""
        known = self.backend
        target = BackendTarget(
            known.get("kind") or "", known.get("name"), known.get("chip"), known.get("config")
        )
        return str(target)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunInfo:
        return cls(**{one.name: data[one.name] for one in fields(cls) if one.name in data})


_ENCODE = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_FIELDS = tuple(one.name for one in fields(CaseResult))


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
