"""Which stage a backend has reached and what the next one needs, item by item."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.result import Status
from ..names import listing
from .attestation import Attestation
from .criteria import State
from .evidence import Evidence, OperatorEvidence, Tally
from .operators import Level, OperatorCoverage
from .stages import (
    Attested,
    Checklist,
    Covered,
    Item,
    Operators,
    PassRate,
    Recorded,
    Reliable,
    Stage,
    StagePlan,
)

_NAMED = 8
"""How many operators the text of a missing item names."""


@dataclass(frozen=True)
class ItemResult:
    """One item with its state; ``detail`` compares what was found with what is required."""

    text: str
    state: State
    detail: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "state": self.state.value, "detail": list(self.detail)}


@dataclass(frozen=True)
class Judged:
    """A stage or checklist with its items."""

    title: str
    summary: str
    items: tuple[ItemResult, ...]

    @property
    def complete(self) -> bool:
        return all(one.state.satisfied for one in self.items)

    @property
    def missing(self) -> tuple[ItemResult, ...]:
        return tuple(one for one in self.items if not one.state.satisfied)

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title, "summary": self.summary, "complete": self.complete,
            "items": [one.to_dict() for one in self.items],
        }  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """The judged stages and checklists; ``reached`` is 0 before Stage 1."""

    stages: tuple[Judged, ...]
    checklists: tuple[Judged, ...]
    target: int

    @property
    def reached(self) -> int:
        for number, one in enumerate(self.stages):
            if not one.complete:
                return number
        return len(self.stages)

    @property
    def next(self) -> Judged | None:
        """The first stage that is not complete."""
        return self.stages[self.reached] if self.reached < len(self.stages) else None

    @property
    def name(self) -> str:
        """The name of the stage reached, like ``Stage 3 (Extended)``, or a text that there is none yet."""
        return self.stages[self.reached - 1].title if self.reached else "no stage yet"

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON-safe data."""
        return {
            "reached": self.reached, "name": self.name, "target": self.target,
            "stages": [one.to_dict() for one in self.stages],
            "checklists": [one.to_dict() for one in self.checklists],
        }  # fmt: skip


def assess(
    evidence: Evidence,
    operators: Sequence[OperatorCoverage],
    plan: StagePlan,
    attestations: Mapping[str, Attestation],
    today: datetime.date,
) -> Progress:
    """Judge every stage and checklist of ``plan``."""
    facts = _Facts(evidence, operators, plan, attestations, today)

    def judged(title: str, one: Stage | Checklist) -> Judged:
        return Judged(title, one.summary, tuple(facts.judge(item) for item in one.item))

    return Progress(
        tuple(judged(f"Stage {one.number} ({one.name})", one) for one in plan.stage),
        tuple(judged(one.name, one) for one in plan.checklist),
        plan.target.stage,
    )


class _Facts:
    """The facts by which items are judged; one method judges each kind of item."""

    def __init__(
        self,
        evidence: Evidence,
        operators: Sequence[OperatorCoverage],
        plan: StagePlan,
        attestations: Mapping[str, Attestation],
        today: datetime.date,
    ) -> None:
        self._evidence, self._operators, self._plan = evidence, operators, plan
        self._attestations, self._today = attestations, today
        self._methods: Mapping[type, Callable[[Any], tuple[State, list[str]]]] = {
            Operators: self._right,
            Covered: self._covered,
            PassRate: self._pass_rate,
            Recorded: self._recorded,
            Reliable: self._reliable,
            Attested: self._attested,
        }

    def judge(self, item: Item) -> ItemResult:
        if item.device and self._evidence.kind not in self._plan.backend.device_kinds:
            why = f"{self._evidence.backend} is not a device; it applies once a device is recorded"
            return ItemResult(item.text, State.NOT_APPLICABLE, (why,))
        state, detail = self._methods[type(item)](item)
        return ItemResult(item.text, state, tuple(detail))

    def _right(self, item: Operators) -> tuple[State, list[str]]:
        if item.names:
            return self._named(item)
        shortfalls, told = [], []
        for phase in item.phases:
            for dtype in item.dtypes or (None,):
                every = [*self._evidence, *self._evidence.unrecorded.values()]
                eligible = [one for one in every if _applies(one, phase, dtype)]
                wrong = [one.name for one in eligible if not _clean(one, phase, dtype)]
                right = len(eligible) - len(wrong)
                needed = item.at_least or max(1, _ceil((item.share or 0) * len(eligible)))
                what = phase if dtype is None else f"{phase} {dtype}"
                text = f"{what}: {right} of {len(eligible)} operators; {needed} are needed"
                told.append(text)
                if right < needed:
                    shortfalls.append(f"{text}; not {listing(wrong, limit=_NAMED)}" if wrong else text)
        return _state(shortfalls), shortfalls or told

    def _named(self, item: Operators) -> tuple[State, list[str]]:
        missing = []
        for alternatives in item.names:
            names = alternatives.split("|")
            found = [self._evidence.operators[one] for one in names if one in self._evidence.operators]
            if not found:
                missing.append(f"{names[0]}: no result")
            elif not any(_clean_in(one, item.phases, item.dtypes) for one in found):
                missing.append(f"{found[0].name}: does not pass in {', '.join(item.phases)}")
        return _state(missing), missing or [f"{len(item.names)} operators"]

    def _covered(self, item: Covered) -> tuple[State, list[str]]:
        full = sum(one.level is Level.FULL for one in self._operators)
        detail = [f"{full} operators are fully covered; {item.at_least} are needed"]
        if full >= item.at_least:
            return State.MET, detail
        nearest = sorted(
            (one for one in self._operators if one.level is Level.PARTIAL), key=lambda one: len(one.missing)
        )
        detail += [f"{one.name}: {'; '.join(one.missing)}" for one in nearest[:_NAMED]]
        return State.MISSING, detail

    def _pass_rate(self, item: PassRate) -> tuple[State, list[str]]:
        total = self._evidence.everything()
        every = total.applicable + total.missing
        rate = total.passed / every if every else 0.0
        found = f"{total.passed} of {every} cases pass ({_percent(rate)})"
        return (State.MET if rate >= item.share else State.MISSING), [f"{found}; {item.share:.0%} are needed"]

    def _recorded(self, item: Recorded) -> tuple[State, list[str]]:
        shortfalls, told = [], []
        for phase in item.phases:
            count = sum(one.tally(phase).applicable > 0 for one in self._evidence)
            text = f"{phase}: {count} operators have results; {item.at_least} are needed"
            told.append(text)
            if count < item.at_least:
                shortfalls.append(text)
        return _state(shortfalls), shortfalls or told

    def _reliable(self, item: Reliable) -> tuple[State, list[str]]:
        shortfalls = []
        repeats = self._plan.rules.repeated_runs
        kinds: Mapping[str, Callable[[Tally], int]] = {
            "cases crash": lambda tally: tally.counts[Status.CRASHED],
            "cases time out": lambda tally: tally.counts[Status.TIMED_OUT],
            f"cases do not end alike in the last {repeats} runs": lambda tally: tally.unreliable,
            f"passing cases are recorded in fewer than {repeats} runs": lambda tally: tally.seldom,
        }
        tallies = {one.name: one.everything() for one in self._evidence}
        for what, count in kinds.items():
            counts = {name: count(tally) for name, tally in tallies.items() if count(tally)}
            if counts:
                names = listing(counts, limit=_NAMED)
                shortfalls.append(f"{sum(counts.values())} {what}, of {len(counts)} operators: {names}")
        return _state(shortfalls), shortfalls or [f"{repeats} runs agree"]

    def _attested(self, item: Attested) -> tuple[State, list[str]]:
        found = self._attestations.get(item.id)
        if found is None:
            return State.MISSING, [f"no evidence with the id {item.id!r}: optest attest {item.id} -- COMMAND"]
        if found.problem:
            return State.MISSING, [f"the evidence {item.id!r} does not count: {found.problem}"]
        until = found.expires(item.valid_days)
        if until < self._today:
            return State.EXPIRED, [f"attested {found.date} by `{found.command}`; expired {until}"]
        return State.ATTESTED, [f"{found.date} by `{found.command}`, until {until}; {found.sha256[:16]}"]


def _state(shortfalls: list[str]) -> State:
    return State.MISSING if shortfalls else State.MET


def _applies(operator: OperatorEvidence, phase: str, dtype: str | None) -> bool:
    """Whether the phase applies to the operator, in ``dtype`` if given; it may apply without results."""
    if phase not in operator.phases:
        return False
    if dtype is None:
        return not (0 < operator.tally(phase).total == operator.tally(phase).counts[Status.SKIPPED])
    supported = operator.gradients if phase in _GRADIENTS else operator.dtypes
    tally = operator.tallies.get((phase, dtype), Tally())
    return dtype in supported and (not tally.total or tally.applicable > 0)


def _clean(operator: OperatorEvidence, phase: str, dtype: str | None) -> bool:
    return operator.tally(phase, None if dtype is None else (dtype,)).clean


def _clean_in(operator: OperatorEvidence, phases: Sequence[str], dtypes: Sequence[str]) -> bool:
    """Whether the operator is clean in every phase with each of ``dtypes`` that it supports, at least one."""
    wanted = [one for one in dtypes if one in operator.dtypes] if dtypes else [None]
    return bool(wanted) and all(_clean(operator, phase, dtype) for phase in phases for dtype in wanted)


_GRADIENTS = frozenset({"backward", "second_order", "forward_mode"})


def _ceil(number: float) -> int:
    return -int(-number // 1)


def _percent(share: float) -> str:
    """Return the share in percent, rounded down, so that 99.97 % does not become 100 %."""
    return f"{int(share * 1000) / 10:g} %"
