"""The mutation test of lowerings: does the suite over PyTorch's database notice each fault?

An entry first runs without a fault. This control run records the calls of each lowering, and a
sample counts only if it passes in it. Then the entry runs with one lowering broken: on a few
samples first, and on all of them if these do not notice the fault.
"""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import chain, zip_longest
from typing import Any

from torch.export import ExportedProgram

from optest.backends import Answer
from optest.core.case import BackendTarget
from optest.core.result import CaseResult, Status
from optest.errors import UnknownName
from optest.torch.opinfo.calls import Call
from optest.torch.opinfo.execution import Request, number_of, run_group
from optest.torch.opinfo.groups import Group

from ...config import override
from ...lowering import Lowering
from ..answers import answer, captured
from ..conformance import ArtifactDriver
from ..sparse_calls import in_parts
from .broken import Calls, Effect, effect, in_place, watched
from .catalogue import Fault, faults_of, kinds
from .rules import excluded, has_parameter
from .survey import Pair, pairs_of

FEW = 4
"""The number of samples of an entry that run first."""
ALL = 128
"""The number of samples that run if the first ones notice nothing; few entries have more."""


class Verdict(StrEnum):
    """The outcome of one fault in one lowering."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    EXCLUDED = "excluded"


@dataclass(frozen=True)
class Mutant:
    """One fault in one lowering.

    ``group`` is what ran: entry, dtype, phase. ``detail`` is what is wrong with the sample that
    noticed the fault, the rule that excludes the fault, or how many samples noticed nothing.
    ``sample``, ``status`` and ``rerun`` (the command that runs it alone) are those of the sample
    that noticed.
    """

    lowering: str
    family: str
    fault: str
    group: str
    verdict: Verdict
    detail: str
    sample: int | str | None = None
    status: str = ""
    rerun: str = ""

    @property
    def kind(self) -> str:
        """The fault's name without the argument that it concerns."""
        return self.fault.partition(":")[0]


@dataclass
class FaultReport:
    """All mutants of a test. ``left_out`` maps each entry that was not used to the reason."""

    seed: int
    mutants: list[Mutant] = field(default_factory=list)
    controls: int = 0
    left_out: dict[str, str] = field(default_factory=dict)

    def having(self, verdict: Verdict) -> list[Mutant]:
        return [one for one in self.mutants if one.verdict is verdict]

    @property
    def applicable(self) -> list[Mutant]:
        """The mutants that no rule excludes."""
        return [one for one in self.mutants if one.verdict is not Verdict.EXCLUDED]

    @property
    def lowerings(self) -> int:
        """The number of lowerings that were broken."""
        return len({one.lowering for one in self.applicable})

    @property
    def caught_share(self) -> float:
        """The share of applicable mutants that were caught; 1.0 if there are none."""
        tried = self.applicable
        return len(self.having(Verdict.CAUGHT)) / len(tried) if tried else 1.0

    def by(self, key: Callable[[Mutant], str]) -> dict[str, tuple[int, int]]:
        """Return the numbers of caught and applicable mutants for each value of ``key``, such as the kind."""
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for one in self.applicable:
            counts[key(one)][0] += one.verdict is Verdict.CAUGHT
            counts[key(one)][1] += 1
        return {name: (caught, total) for name, (caught, total) in sorted(counts.items())}

    def to_dict(self) -> dict[str, Any]:
        """Return the report with JSON types only."""
        return {
            "seed": self.seed,
            "lowerings": self.lowerings,
            "controls": self.controls,
            "applicable": len(self.applicable),
            "caught": len(self.having(Verdict.CAUGHT)),
            "caught_share": self.caught_share,
            "faults": {name: list(counts) for name, counts in self.by(lambda one: one.kind).items()},
            "families": {name: list(counts) for name, counts in self.by(lambda one: one.family).items()},
            "mutants": [asdict(one) for one in self.mutants],
            "left_out": self.left_out,
        }


def run_faults(
    entries: Sequence[str] = (),
    faults: Sequence[str] = (),
    *,
    lowerings: int = 60,
    each: int = 3,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> FaultReport:
    """Break up to ``lowerings`` lowerings, each in up to ``each`` ways, and see what the suite notices.

    ``entries`` are patterns that select entries of the suite, ``faults`` are kinds of faults; empty
    means all. ``seed`` draws lowerings, faults and samples. The registry is restored afterwards.
    Raises :class:`optest.errors.UnknownName` for an unknown kind or a pattern that matches nothing.
    """
    for kind in faults:
        if kind not in kinds():
            raise UnknownName("fault", kind, kinds())
    report = FaultReport(seed)
    trials = _Trials(report)
    taken = 0
    with override(cache=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for pair in pairs_of(entries, seed, progress):
            if taken == lowerings:
                break
            so_far = f"{len(report.applicable)} faults, {len(report.having(Verdict.SURVIVED))} not caught"
            progress(f"{so_far}: {pair.lowering.name} in {pair.group}")
            found = list(trials.of(pair, _drawn(pair.lowering, faults, seed), each))
            report.mutants += found
            taken += any(one.verdict is not Verdict.EXCLUDED for one in found)
    return report


def _drawn(lowering: Lowering, kinds: Sequence[str], seed: int) -> list[Fault]:
    """Return the faults of a lowering in the order of trial, alternating between calls and values."""
    groups: dict[bool, list[Fault]] = {True: [], False: []}
    for fault in faults_of(lowering):
        if not kinds or fault.kind in kinds:
            groups[fault.calls].append(fault)
    for one in groups.values():
        random.Random(f"{seed} {lowering.name}").shuffle(one)
    return [one for one in chain(*zip_longest(groups[True], groups[False])) if one is not None]


@dataclass(frozen=True)
class _Control:
    """The run of a group without a fault: which samples pass, and the calls of its lowerings."""

    results: Sequence[CaseResult]
    calls: Calls

    @property
    def passed(self) -> set[Any]:
        return {number_of(one) for one in self.results if one.status is Status.PASSED}


class _Driver(ArtifactDriver):
    """The driver ``torchstone``, but it captures each program only once, as no fault changes the capture.

    ``samples`` identifies the group that the calls belong to; the same value stands for the same calls.
    """

    def __init__(self) -> None:
        self.samples: tuple[Group, int] | None = None
        self.programs: dict[Any, ExportedProgram] = {}

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        # ``answer`` captures calls in parts, and does not change calls that are in parts already. Their
        # gradients need not be converted back: the outputs are enough to show a fault.
        calls = [in_parts(one) for one in calls]
        places = {id(one): place for place, one in enumerate(calls)}

        def capture(part: Sequence[Call]) -> ExportedProgram:
            key = (self.samples, *(places[id(one)] for one in part))
            if key not in self.programs:
                self.programs[key] = captured(part)
            return self.programs[key]

        return answer(calls, repeats, capture=capture)


class _Trials:
    """The runs of entries, with and without faults."""

    def __init__(self, report: FaultReport) -> None:
        self.report = report
        self.driver = _Driver()
        self.target = BackendTarget(self.driver.kind, self.driver.name)
        self.controls: dict[tuple[Group, int], _Control] = {}

    def of(self, pair: Pair, faults: Sequence[Fault], each: int) -> Iterator[Mutant]:
        """Try faults until ``each`` of them applied; yield these mutants, and those that a rule excludes."""
        self.driver.programs.clear()  # programs keep their samples in memory, and this entry is a new one
        if self._unfit(pair):
            return
        applied = 0
        for fault in faults:
            if applied == each:
                return
            mutant = self._tried(pair, fault)
            applied += mutant.verdict is not Verdict.EXCLUDED
            yield mutant

    def _unfit(self, pair: Pair) -> bool:
        """Whether the entry cannot test the lowering; a failed control goes to the report."""
        control = self._control(pair.group, FEW)
        failed = [one for one in control.results if one.status.failed]
        if failed:
            self.report.left_out[pair.group.entry] = f"its control fails: {failed[0].reason}"
        elif not control.passed:
            self.report.left_out[pair.group.entry] = "none of its samples has an answer"
        return bool(failed) or not control.passed or pair.lowering.name not in control.calls

    def _control(self, group: Group, most: int) -> _Control:
        if (group, most) not in self.controls:
            with watched() as calls:
                results = self._results(group, most)
            self.controls[group, most] = _Control(results, calls)
            self.report.controls = len({one for one, _ in self.controls})
        return self.controls[group, most]

    def _results(self, group: Group, most: int) -> list[CaseResult]:
        self.driver.samples = group, most
        return run_group(self.driver, Request(group, self.target, most=most)).results

    def _tried(self, pair: Pair, fault: Fault) -> Mutant:
        reason = excluded(pair.lowering, fault)
        if reason is not None:
            return _mutant(pair, fault, Verdict.EXCLUDED, reason)
        strongest, looked_at = Effect.NOTHING, 0
        for group in pair.groups(fault.phases):
            for most in (FEW, ALL):
                control = self._control(group, most)
                found = _strongest(pair.lowering, fault, control)
                strongest = max(strongest, found, key=lambda one: one.value)
                noticed = self._noticed(pair, fault, group, most) if found is Effect.SHOWS else None
                if noticed is not None:
                    return noticed
            looked_at += len(control.passed)
        return _mutant(pair, fault, *_unnoticed(pair, fault, strongest, looked_at))

    def _noticed(self, pair: Pair, fault: Fault, group: Group, most: int) -> Mutant | None:
        """Return the mutant as caught if a sample passes without the fault and fails with it, else None."""
        passed = self._control(group, most).passed
        with in_place(pair.lowering, fault):
            results = self._results(group, most)
        for one in results:
            if number_of(one) in passed and one.status is not Status.PASSED:
                return _mutant(replace(pair, group=group), fault, Verdict.CAUGHT, one.reason, one)
        return None


def _unnoticed(pair: Pair, fault: Fault, strongest: Effect, looked_at: int) -> tuple[Verdict, str]:
    """Return the verdict on a fault that no sample noticed, among the samples that pass without it."""
    if not looked_at:
        return Verdict.EXCLUDED, "no sample passes without the fault, or has an answer"
    if strongest is Effect.SHOWS:
        return Verdict.SURVIVED, f"{looked_at} samples noticed nothing"
    if strongest is Effect.REFUSED:
        return Verdict.EXCLUDED, "PyTorch takes no call of the suite with that change"
    if not fault.calls:
        return Verdict.EXCLUDED, f"no call has what it needs: {fault.needs}"
    if not pair.own:
        return Verdict.EXCLUDED, "another operator's entry, which has one use for it"
    if not has_parameter(pair.function, fault):
        return Verdict.EXCLUDED, "the entry's function has no such parameter"
    return Verdict.SURVIVED, f"none of {looked_at} samples has another value"


def _strongest(lowering: Lowering, fault: Fault, control: _Control) -> Effect:
    found = Effect.NOTHING
    for seen in control.calls.get(lowering.name, ()):
        found = max(found, effect(lowering, fault, seen), key=lambda one: one.value)
        if found is Effect.SHOWS:
            break
    return found


def _mutant(
    pair: Pair, fault: Fault, verdict: Verdict, detail: str, noticed: CaseResult | None = None
) -> Mutant:
    return Mutant(
        pair.lowering.name,
        pair.lowering.family,
        fault.name,
        str(pair.group),
        verdict,
        detail,
        number_of(noticed) if noticed else None,
        noticed.status.value if noticed else "",
        noticed.rerun if noticed else "",
    )
