"""The five criteria of a covered operator, as functions of its recorded results.

1. a kernel exists and is right; 2. all major dtypes work; 3. gradients are right, if the
operator is differentiable; 4. edge cases and errors; 5. tests exist and pass reliably.
Not here: counting (``evidence``), what whole backends need (``stages``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from .evidence import FORWARD, OperatorEvidence, Tally

_SHOWN = 100
"""How many characters of a reason are shown."""


class State(StrEnum):
    """The state of a criterion or of an item of a stage."""

    MET = "met"
    MISSING = "missing"
    ATTESTED = "attested"
    EXPIRED = "expired"
    NOT_APPLICABLE = "not applicable"

    @property
    def satisfied(self) -> bool:
        return self not in (State.MISSING, State.EXPIRED)


@dataclass(frozen=True)
class Rules:
    """The requirements of the criteria; a team may replace them in its stages file."""

    major_dtypes: tuple[str, ...] = ("float32", "float64", "int32", "int64")
    gradient_phases: tuple[str, ...] = ("backward",)
    edge_phases: tuple[str, ...] = ("noncontiguous", "errors")
    repeated_runs: int = 2


@dataclass(frozen=True)
class Finding:
    """The state of one criterion of one operator; ``missing`` lists what is missing."""

    criterion: str
    state: State
    missing: tuple[str, ...] = ()


def kernel(operator: OperatorEvidence, rules: Rules) -> Finding:
    """Require that every forward case of at least one dtype passes without falling back."""
    tallies = [tally for (phase, _), tally in operator.tallies.items() if phase == FORWARD]
    if any(one.clean for one in tallies):
        return _finding("kernel", ())
    return _finding("kernel", [_short("forward", operator.tally(FORWARD))])


def dtypes(operator: OperatorEvidence, rules: Rules) -> Finding:
    """Require that every forward case passes in each major dtype that the reference supports."""
    return _finding("dtypes", _unclean(operator, FORWARD, _major(operator.dtypes, rules)))


def autograd(operator: OperatorEvidence, rules: Rules) -> Finding:
    """Require right gradients for each major dtype that is differentiable.

    If all gradient cases were skipped, the criterion does not apply.
    """
    wanted = _major(operator.gradients, rules)
    if not wanted or all(operator.tally(phase, wanted).skipped for phase in rules.gradient_phases):
        return Finding("autograd", State.NOT_APPLICABLE)
    return _finding(
        "autograd", [one for phase in rules.gradient_phases for one in _unclean(operator, phase, wanted)]
    )


def edges(operator: OperatorEvidence, rules: Rules) -> Finding:
    """Require that every recorded edge case and error passes, and that there is at least one.

    Small inputs count only in dtypes in which some forward case passes: otherwise the dtype is
    missing, not the edge case.
    """
    found = {phase: operator.tally(phase) for phase in rules.edge_phases if phase in operator.phases}
    small = Tally()
    for dtype, tally in operator.edges.items():
        if operator.tally(FORWARD, (dtype,)).passed:
            small += tally
    if small.total:
        found["empty, 0-d and size-1 inputs"] = small
    missing = [_short(what, tally) for what, tally in found.items() if not (tally.clean or tally.skipped)]
    if not missing and not any(tally.clean for tally in found.values()):
        missing.append("no edge case runs: all are skipped" if found else "no edge case is recorded")
    return _finding("edges", missing)


def reliability(operator: OperatorEvidence, rules: Rules) -> Finding:
    """Require that cases end the same way in each of the last runs, and that some pass."""
    tally = operator.everything()
    missing = []
    if tally.unreliable:
        missing.append(f"{tally.unreliable} cases do not end alike in the last {rules.repeated_runs} runs")
    if tally.seldom:
        missing.append(f"{tally.seldom} cases are recorded in fewer than {rules.repeated_runs} runs")
    if not tally.passed:
        missing.append("no case passes")
    return _finding("reliability", missing)


CRITERIA: Mapping[str, Callable[[OperatorEvidence, Rules], Finding]] = {
    "kernel": kernel,
    "dtypes": dtypes,
    "autograd": autograd,
    "edges": edges,
    "reliability": reliability,
}
"""The criteria by name, in the order in which they are reported."""


def _finding(criterion: str, missing: Iterable[str]) -> Finding:
    found = tuple(missing)
    return Finding(criterion, State.MISSING if found else State.MET, found)


def _major(supported: set[str], rules: Rules) -> list[str]:
    """Return the major dtypes among ``supported``; all if none is major (complex and bool operators)."""
    return [one for one in rules.major_dtypes if one in supported] or sorted(supported)


def _unclean(operator: OperatorEvidence, phase: str, wanted: Iterable[str]) -> list[str]:
    what = "" if phase == FORWARD else f"{phase} "
    found = []
    for dtype in wanted:
        tally = operator.tallies.get((phase, dtype), Tally())
        if not (tally.clean or tally.skipped):
            found.append(_short(f"{what}{dtype}", tally))
    return found


def _short(what: str, tally: Tally) -> str:
    if not tally.total:
        return f"{what}: no result"
    if tally.missing and tally.passed == tally.applicable:
        return f"{what}: {tally.missing} of {tally.total + tally.missing} cases have no result"
    reason = f" ({tally.why[:_SHOWN]})" if tally.why else ""
    return f"{what}: {tally.applicable - tally.passed} of {tally.applicable} do not pass{reason}"
