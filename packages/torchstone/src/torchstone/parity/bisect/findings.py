"""What a search found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optest.core.comparison import Comparison

from ...compiler.provenance import Phase
from .arbiter import Judge, Kind
from .repeats import Difference, Recorder
from .values import Piece


@dataclass(frozen=True)
class Finding:
    """The first value that departs, where it is computed, and what it comes from.

    ``value`` is the node's name in its graph, or the name of a result. ``engines`` says what each engine
    made of it. ``piece`` shows it by itself, if anything does.
    """

    kind: Kind
    phase: Phase
    operator: str
    value: str
    line: str | None
    module: str | None
    road: str
    reason: str
    comparison: Comparison | None = None
    engines: Mapping[str, str] = field(default_factory=dict)
    piece: Piece | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "phase": self.phase,
            "operator": self.operator,
            "value": self.value,
            "line": self.line,
            "module": self.module,
            "road": self.road,
            "reason": self.reason,
            "engines": dict(self.engines),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }


@dataclass
class Report:
    """What a search found; ``finding`` is None where nothing departs."""

    model: str
    engine: str
    finding: Finding | None = None
    values: int = 0
    """How many values were compared."""
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "engine": self.engine,
            "departs": self.finding is not None,
            "finding": None if self.finding is None else self.finding.to_dict(),
            "values": self.values,
            "notes": list(self.notes),
        }


def unrepeated(first: Recorder, difference: Difference) -> Finding:
    """The model does something else each time, before any compiler sees it."""
    event = first.events[difference.place]
    comparison = None if difference.values is None else Judge().plain(*reversed(difference.values))
    return Finding(
        Kind.NONDETERMINISM,
        event.origin.phase,
        event.operator,
        f"call {difference.place + 1}",
        event.origin.line,
        event.origin.module,
        "eager PyTorch",
        f"two runs of eager PyTorch differ: {difference.what}",
        comparison,
    )
