"""The results of a search, as data."""

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
    """The first value that departs, where it is computed, and the cause.

    ``value`` is the node's name in its graph, or the name of a result. ``engines`` has the verdict on each
    engine. ``piece`` is a part of the graph that shows the departure by itself, if there is one.
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
    """The report of a search; ``finding`` is None if nothing departs."""

    model: str
    engine: str
    finding: Finding | None = None
    values: int = 0
    """The number of values that were compared."""
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
    """Return the finding for a model that differs between two eager runs, before any compiler sees it."""
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
