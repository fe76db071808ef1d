"""The result of a run in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .result import CaseResult, Status

CAPTURE = "capture"
"""The name of PyTorch's own part of a suite's time: tracing a function into a graph."""
KEPT = 1000
"""The most failures that a summary keeps; all are counted."""


@dataclass
class Summary:
    """Counts by status, and the first failures.

    ``total`` is the number of planned cases, if known. ``resumed`` counts the results taken from an earlier,
    interrupted run. ``interrupted``: the run ended, by Ctrl-C or an error, before every case had a result.
    ``stopped``: a failure ended the run early. ``problems`` are reports and ledgers that could not be
    written, and failed teardowns. ``seconds`` has the time of each named part of a suite of PyTorch's, summed
    over all processes and over the runs that this one resumed.
    """

    total: int | None = None
    counts: Counter[Status] = field(default_factory=Counter)
    failures: list[CaseResult] = field(default_factory=list)
    flaky: int = 0
    resumed: int = 0
    duration_s: float = 0.0
    interrupted: bool = False
    stopped: bool = False
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, result: CaseResult) -> None:
        """Count one result."""
        self.counts[result.status] += 1
        self.flaky += result.flaky
        if result.status.failed and len(self.failures) < KEPT:
            self.failures.append(result)

    @property
    def ran(self) -> int:
        """The number of cases that have a result."""
        return self.counts.total()

    @property
    def missing(self) -> int | None:
        """The number of planned cases without a result; None if the number of planned cases is unknown."""
        return None if self.total is None else max(self.total - self.ran, 0)

    @property
    def failed(self) -> int:
        """The number of cases that make the run fail."""
        return sum(count for status, count in self.counts.items() if status.failed)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as a JSON-safe dictionary, with the ids of failures."""
        return {
            "total": self.total,
            "ran": self.ran,
            "missing": self.missing,
            "failed": self.failed,
            "counts": {status.value: self.counts[status] for status in Status},
            "flaky": self.flaky,
            "resumed": self.resumed,
            "duration_s": round(self.duration_s, 6),
            "interrupted": self.interrupted,
            "stopped": self.stopped,
            "failures": [one.case_id for one in self.failures],
            "problems": list(self.problems),
            "seconds": {name: round(taken, 3) for name, taken in self.seconds.items()},
        }


def unfinished(outcome: Mapping[str, Any] | None, planned: int | None, ran: int) -> str:
    """Return why a recorded run is incomplete, and how many cases have a result; empty if it is complete.

    ``outcome`` is the dictionary of its summary, or None if it has none; ``planned`` and ``ran`` count cases.
    """
    total = planned
    if outcome is not None:
        stopped, interrupted = bool(outcome.get("stopped")), bool(outcome.get("interrupted"))
        recorded = outcome.get("total")
        total = recorded if isinstance(recorded, int) else planned
        if not stopped and not interrupted and not (total is not None and ran < total):
            return ""
        why = "stopped at a failure" if stopped else "interrupted"
    else:
        why = "still going on, or killed"
    return why if total is None else f"{why}: {ran} of {total} cases have a result"


def cost_split(seconds: Mapping[str, float]) -> str:
    """Return one line with the time of PyTorch's capture and of everything else; empty if not timed."""
    capture = seconds.get(CAPTURE, 0.0)
    rest = sum(seconds.values()) - capture
    if not rest + capture:
        return ""
    longest = sorted(seconds.items(), key=lambda one: -one[1])
    parts = ", ".join(f"{name} {taken:.1f} s" for name, taken in longest if name != CAPTURE)
    return f"PyTorch's capture {capture:.1f} s; everything else {rest:.1f} s: {parts}"
