"""Computes coverage once for all that show it: commands, COVERAGE.md, badges, dashboards."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ledger import Ledger
from .attestation import load_attestations
from .evidence import Evidence, collect
from .operators import Level, OperatorCoverage, judge_operators, results_of
from .progress import Progress, assess
from .stages import StagePlan, load_stages


@dataclass(frozen=True)
class Snapshot:
    """The evidence, operators and stages of one backend."""

    evidence: Evidence
    plan: StagePlan
    operators: tuple[OperatorCoverage, ...]
    progress: Progress

    @property
    def counts(self) -> Counter[Level]:
        return Counter(one.level for one in self.operators)

    @property
    def share(self) -> float:
        """The share of fully covered operators among those that are meant to work."""
        meant = len(self.operators) + len(self.evidence.unrecorded) - self.counts[Level.UNSUPPORTED]
        return self.counts[Level.FULL] / meant if meant else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON-safe data."""
        return {
            "backend": self.evidence.backend,
            "runs": [one.run_id for one in self.evidence.runs],
            "warnings": list(self.evidence.warnings),
            "counts": {level.value: self.counts[level] for level in Level},
            "seconds": {name: round(taken, 3) for name, taken in self.evidence.seconds.items()},
            "operators": [one.to_dict() for one in self.operators],
            "overloads": [
                {"overload": one.name, "operators": sorted(one.operators), "results": results_of(one.tallies)}
                for one in self.evidence.overloads.values()
            ],
            "stage": self.progress.to_dict(),
        }


def take_snapshot(
    ledger: Ledger,
    *,
    backend: str | None = None,
    runs: Sequence[str] = (),
    stages: Path | None = None,
    evidence: Path | None = None,
    today: datetime.date | None = None,
) -> Snapshot:
    """Compute a snapshot from ``ledger``; ``stages`` and ``evidence`` are files, ``today`` decides expiry."""
    plan, attestations = load_stages(stages), load_attestations(evidence)
    found = collect(ledger, backend=backend, runs=runs, repeats=plan.rules.repeated_runs)
    operators = tuple(judge_operators(found, plan.criteria, plan.exclusions))
    day = today or datetime.date.today()
    return Snapshot(found, plan, operators, assess(found, operators, plan, attestations, day))
