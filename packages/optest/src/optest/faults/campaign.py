"""The mutation test of the suite: checks whether it notices each fault in each operator.

The cases of an operator run with every fault that applies, until one case notices the fault. The
inputs, references and verdicts are those of a normal run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.driver import BackendDriver
from ..backends.stub import StubDriver
from ..core.case import TestCase
from ..core.reference import reference_outputs, rounded
from ..core.verdict import judge
from ..generators.base import load_generator
from ..operators.descriptor import OperatorDescriptor
from .catalogue import Arrays, Fault, faults_of, find_fault
from .rules import cases_of, excluded

Array = NDArray[Any]


class Verdict(StrEnum):
    """The outcome for one fault in one operator."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    EXCLUDED = "excluded"


@dataclass(frozen=True)
class Pair:
    """One fault in one operator.

    ``detail`` describes the case that noticed the fault, the rule that excludes the fault, or how many
    cases noticed nothing. ``case_id`` is the id of the case that noticed.
    """

    op: str
    fault: str
    verdict: Verdict
    detail: str
    case_id: str = ""


@dataclass
class FaultReport:
    """All pairs of a mutation test."""

    pairs: list[Pair] = field(default_factory=list)

    def having(self, verdict: Verdict) -> list[Pair]:
        return [one for one in self.pairs if one.verdict is verdict]

    @property
    def applicable(self) -> int:
        """The number of pairs that no rule excludes."""
        return len(self.pairs) - len(self.having(Verdict.EXCLUDED))

    @property
    def caught_share(self) -> float:
        """The share of caught pairs among the applicable ones; 1.0 if there are none."""
        return len(self.having(Verdict.CAUGHT)) / self.applicable if self.applicable else 1.0

    @property
    def caught_per_operator(self) -> float:
        """The average number of faults caught per operator."""
        operators = {one.op for one in self.pairs}
        return len(self.having(Verdict.CAUGHT)) / len(operators) if operators else 0.0

    def by(self, key: Callable[[Pair], str]) -> dict[str, tuple[int, int]]:
        """Return the numbers of caught and applicable pairs for each value of ``key``, such as the fault."""
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for one in self.pairs:
            if one.verdict is not Verdict.EXCLUDED:
                counts[key(one)][0] += one.verdict is Verdict.CAUGHT
                counts[key(one)][1] += 1
        return {name: (caught, total) for name, (caught, total) in counts.items()}

    def to_dict(self) -> dict[str, Any]:
        """The report with JSON types only."""
        return {
            "operators": len({one.op for one in self.pairs}),
            "applicable": self.applicable,
            "caught": len(self.having(Verdict.CAUGHT)),
            "caught_share": self.caught_share,
            "caught_per_operator": self.caught_per_operator,
            "faults": {name: list(counts) for name, counts in self.by(fault_kind).items()},
            "survivors": [asdict(one) for one in self.having(Verdict.SURVIVED)],
            "exclusions": [asdict(one) for one in self.having(Verdict.EXCLUDED)],
            "per_operator": {name: list(counts) for name, counts in self.by(lambda one: one.op).items()},
        }


def fault_kind(pair: Pair) -> str:
    """Return the fault's name without the attribute that it ignores."""
    return pair.fault.partition(":")[0]


def run_faults(
    descriptors: Iterable[OperatorDescriptor],
    faults: Sequence[str] = (),
    *,
    driver: BackendDriver | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> FaultReport:
    """Try ``faults`` (all, if empty) in every operator of ``descriptors``.

    ``driver`` computes the right outputs (the references, if None); it must pass the suite.
    ``progress`` is called with each operator's name before it is tried. The names of faults are those
    that :func:`find_fault` takes. Raises :class:`UnknownName`.
    """
    for name in faults:
        find_fault(name)
    report = FaultReport()
    for descriptor in descriptors:
        progress(descriptor.name)
        chosen = [one for one in faults_of(descriptor) if not faults or one.name in faults]
        report.pairs += _try(descriptor, chosen, driver or StubDriver(), seed)
    return report


def _try(
    descriptor: OperatorDescriptor, faults: Sequence[Fault], driver: BackendDriver, seed: int
) -> list[Pair]:
    pairs, open_faults = [], []
    for fault in faults:
        reason = excluded(descriptor, fault)
        if reason is None:
            open_faults.append(fault)
        else:
            pairs.append(Pair(descriptor.name, fault.name, Verdict.EXCLUDED, reason))
    cases = cases_of(descriptor, seed)
    for case in cases:
        if not open_faults:
            break
        trial = _Trial(driver, case)
        for fault in list(open_faults):
            if trial.notices(fault):
                open_faults.remove(fault)
                pairs.append(Pair(descriptor.name, fault.name, Verdict.CAUGHT, case.describe(), case.id))
    unnoticed = f"{len(cases)} cases noticed nothing"
    pairs += [Pair(descriptor.name, fault.name, Verdict.SURVIVED, unnoticed) for fault in open_faults]
    return pairs


class _Trial:
    """One case with its inputs and right answer, which are made once for all faults."""

    def __init__(self, driver: BackendDriver, case: TestCase) -> None:
        self.driver, self.case = driver, case
        self.inputs, given = load_generator(case.generator).generate(
            case, np.random.default_rng(int(case.id, 16))
        )
        self.wide: Arrays | None = None
        if given is None:
            self.wide = reference_outputs(case, self.inputs)
            given = rounded(case, self.wide)
        self.expected = given

    def notices(self, fault: Fault) -> bool:
        """Whether the comparator rejects the outputs of the fault."""
        with np.errstate(all="ignore"):
            actual = fault.spoil(self._run, self.case, self.inputs)
        if all(map(_identical, actual, self.expected)):
            return False
        found = judge(self.case, actual, self.expected, self.wide, lambda: self.inputs)
        return not all(one.passed for one in found)

    def _run(self, case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
        return self.driver.run(case, [one.copy() for one in inputs])


def _identical(left: Array, right: Array) -> bool:
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes()
    )
