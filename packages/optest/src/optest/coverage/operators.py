"""Which operators are covered: fully, partially, not yet, or intentionally not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from ..core.result import Status
from .criteria import CRITERIA, Finding, Rules
from .evidence import FORWARD, Evidence, OperatorEvidence, Tally


class Level(StrEnum):
    """How far an operator is covered."""

    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Exclusion:
    """Operators (a pattern) that are intentionally not supported, and why."""

    operator: str
    reason: str


@dataclass(frozen=True)
class OperatorCoverage:
    """The verdict on one operator; ``reason`` says why it is intentionally unsupported."""

    evidence: OperatorEvidence
    level: Level
    findings: tuple[Finding, ...]
    reason: str = ""

    @property
    def name(self) -> str:
        return self.evidence.name

    @property
    def category(self) -> str:
        return self.evidence.category

    @property
    def missing(self) -> tuple[str, ...]:
        """The reasons why the operator is not covered, without repetitions."""
        return tuple(dict.fromkeys(text for one in self.findings for text in one.missing))

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON-safe data."""
        forward = self.evidence.tally(FORWARD)
        return {
            "operator": self.name,
            "category": self.category,
            "level": self.level.value,
            "reason": self.reason,
            "criteria": {one.criterion: one.state.value for one in self.findings},
            "missing": list(self.missing),
            "forward": {"passed": forward.passed, "applicable": forward.applicable},
            "classes": dict(sorted(self.evidence.everything().classes.items())),
            "results": results_of(self.evidence.tallies),
        }


def results_of(tallies: Mapping[tuple[str, str], Tally]) -> list[dict[str, Any]]:
    """Return the counts by phase and dtype as JSON-safe data."""
    return [
        {"phase": phase, "dtype": dtype, **tally.to_dict()}
        for (phase, dtype), tally in sorted(tallies.items())
    ]


def judge_operators(
    evidence: Evidence, rules: Rules, exclusions: Sequence[Exclusion] = ()
) -> list[OperatorCoverage]:
    """Return the verdict on every recorded operator, in the order of ``evidence``."""
    return [_judge(one, rules, exclusions) for one in evidence]


def _judge(operator: OperatorEvidence, rules: Rules, exclusions: Sequence[Exclusion]) -> OperatorCoverage:
    findings = tuple(check(operator, rules) for check in CRITERIA.values())
    if all(one.state.satisfied for one in findings):
        return OperatorCoverage(operator, Level.FULL, findings)
    if reason := _intention(operator, exclusions):
        return OperatorCoverage(operator, Level.UNSUPPORTED, findings, reason)
    right = (
        any(tally.clean for (phase, _), tally in operator.tallies.items() if phase == FORWARD)
        or operator.tally(FORWARD).passed
    )
    return OperatorCoverage(operator, Level.PARTIAL if right else Level.NONE, findings)


def _intention(operator: OperatorEvidence, exclusions: Sequence[Exclusion]) -> str:
    """Return why the operator is not meant to work; empty if it is, or if any forward case passes."""
    forward = operator.tally(FORWARD)
    if forward.passed:
        return ""
    for one in exclusions:
        if fnmatchcase(operator.name, one.operator):
            return one.reason
    declared = forward.counts[Status.SKIPPED] + forward.counts[Status.XFAILED]
    return forward.why if 0 < declared == forward.total else ""
