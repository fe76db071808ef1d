"""The evidence: recorded cases of one backend, counted by operator, dtype and phase.

The newest record of a case counts; older ones say only whether it is reliable. Shards
and partial runs merge by themselves, because case ids are the same in every run. What
a resumed run took over from one that was stopped is one execution, not two.
Not here: what the counts amount to (``criteria``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from ..core.result import RunInfo, Status
from ..errors import UsageError
from ..ledger import Ledger
from ..ledger.difference import differing
from ..ledger.order import named, undated
from ..ledger.reading import CaseRow
from ..ledger.shards import missing_shards
from ..names import listing
from .selection import Selection

FORWARD = "forward"
_MACHINE = frozenset({"cpu", "cpus", "platform", "numpy"})
"""Facts of a run's environment that pages leave out."""
NO_OPERATORS = frozenset({"module", "optim", "python_ref", "hop"})
"""Suites whose entries are made of operators: what is recorded of them is not counted as operators."""


@dataclass
class Tally:
    """Cases of one operator, dtype and phase: how they ended, and the reasons of those that did not pass.

    ``classes`` counts them by how they ran. ``ulp`` is the largest error of a passing case,
    ``control_ulp`` the largest of eager PyTorch's own, both against a wider result.
    ``samples`` is how many cases there are by the suite's own count, where it was recorded.
    """

    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unreliable: int = 0
    seldom: int = 0
    """Passing cases that were recorded fewer times than reliability asks for."""
    classes: Counter[str] = field(default_factory=Counter)
    ulp: float | None = None
    control_ulp: float | None = None
    samples: int = 0
    missing: int = 0
    """Cases of a full run that have no record."""

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def applicable(self) -> int:
        """All but those that were skipped, each with its reason."""
        return self.total - self.counts[Status.SKIPPED]

    @property
    def passed(self) -> int:
        return self.counts[Status.PASSED]

    @property
    def clean(self) -> bool:
        """Whether there is a result, and every applicable case of a full run passed."""
        return 0 < self.applicable == self.passed and not self.missing

    @property
    def skipped(self) -> bool:
        """Whether there is a result, and every case was skipped, each with its reason."""
        return self.total > 0 == self.applicable and not self.missing

    @property
    def why(self) -> str:
        """The commonest reason, in one line."""
        return self.reasons.most_common(1)[0][0] if self.reasons else ""

    def add(self, row: CaseRow) -> None:
        self.counts[row.status] += 1
        if kind := _class_of(row):
            self.classes[kind] += 1
        if row.status is Status.PASSED:
            self._widen(row.ulp, row.control_ulp)
        else:
            self.reasons[row.reason.partition("\n")[0] or row.status.value] += 1

    def _widen(self, ulp: float | None, control_ulp: float | None) -> None:
        if control_ulp is not None:  # without a control's error, ``ulp`` is against eager's result
            self.ulp, self.control_ulp = _larger(self.ulp, ulp), _larger(self.control_ulp, control_ulp)

    def __iadd__(self, other: Tally) -> Tally:
        self.counts += other.counts
        self.reasons += other.reasons
        self.unreliable += other.unreliable
        self.seldom += other.seldom
        self.classes += other.classes
        self.samples += other.samples
        self.missing += other.missing
        self._widen(other.ulp, other.control_ulp)
        return self

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "passed": self.passed, "applicable": self.applicable, "total": self.total,
            "samples": self.samples or self.total + self.missing,
            "classes": dict(sorted(self.classes.items())), "reason": self.why,
            "ulp": self.ulp, "eager_ulp": self.control_ulp,
            **({"missing": self.missing} if self.missing else {}),
        }  # fmt: skip


@dataclass
class OperatorEvidence:
    """What is recorded of one operator, all its variants together.

    ``dtypes`` and ``gradients`` are those that the reference supports, as the suite
    recorded them; ``phases`` those that apply at all. Without such records they are what
    was run.
    """

    name: str
    category: str
    dtypes: set[str] = field(default_factory=set)
    gradients: set[str] = field(default_factory=set)
    phases: set[str] = field(default_factory=set)
    declared_gradients: bool = False
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    edges: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """By dtype: forward cases with an empty, 0-d or size-1 input."""

    def tally(self, phase: str, dtypes: Iterable[str] | None = None) -> Tally:
        """The sum over ``dtypes`` (all if None) of a phase."""
        chosen = None if dtypes is None else set(dtypes)
        total = Tally()
        for (one, dtype), tally in self.tallies.items():
            if one == phase and (chosen is None or dtype in chosen):
                total += tally
        return total

    def everything(self) -> Tally:
        """The sum of all phases."""
        total = Tally()
        for one in self.tallies.values():
            total += one
        return total


@dataclass
class OverloadEvidence:
    """The records of the cases in which eager PyTorch calls an overload.

    ``operators`` are those whose cases they are, ``tallies`` by phase and dtype.
    """

    name: str
    operators: set[str] = field(default_factory=set)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))


@dataclass
class Evidence:
    """Everything that is recorded of one backend, and in which runs; ``warnings`` are for people.

    ``seconds`` is what the parts of all runs took, by name, where it was recorded.
    ``unrecorded`` are operators of the built-in suite of which nothing is recorded, if any other is.
    """

    backend: str
    kind: str
    runs: tuple[RunInfo, ...]
    operators: dict[str, OperatorEvidence]
    overloads: dict[str, OverloadEvidence] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    unrecorded: dict[str, OperatorEvidence] = field(default_factory=dict)

    def __iter__(self) -> Iterator[OperatorEvidence]:
        return iter(self.operators.values())

    @property
    def versions(self) -> str:
        """What the runs were made with: ``optest 0.1.0, commit c0ffee, python 3.11, torch 2.13``."""
        facts = {"optest": {one.version for one in self.runs}}
        for run in self.runs:
            for name in sorted(run.environment.keys() - _MACHINE):
                facts.setdefault(name, set()).add(run.environment[name])
        return ", ".join(f"{name} {' and '.join(sorted(values))}" for name, values in facts.items())

    def everything(self) -> Tally:
        """The sum over all operators."""
        total = Tally()
        for one in self:
            total += one.everything()
        return total


def collect(
    ledger: Ledger, *, backend: str | None = None, runs: Sequence[str] = (), repeats: int = 2
) -> Evidence:
    """Read the runs of one backend, by default that of the newest run.

    ``runs`` (ids, or their beginnings) narrows it to these. ``repeats``: how many results
    of a case reliability looks at. Raises :class:`UsageError` where there is nothing to read.
    """
    chosen = runs_of(ledger, backend, runs)
    operators: dict[str, OperatorEvidence] = {}
    overloads: dict[str, OverloadEvidence] = {}
    seconds: Counter[str] = Counter()
    seen: dict[str, _Seen] = {}
    outcomes, entries = ledger.outcomes(), 0
    selection = Selection()
    others: set[str] = set()
    for run in reversed(chosen):
        outcome = outcomes.get(run.run_id, {})
        seconds.update(_timed(outcome))
        another = _ended(outcome)
        for row in ledger.cases(run.run_id, metrics=True):
            if row.origin and row.origin.suite in NO_OPERATORS:
                continue
            known = seen.get(row.case_id)
            if row.origin and row.origin.declared:
                entries = max(entries, row.origin.declared.entries)
            if known is None:
                selection.take(row)
                seen[row.case_id] = _Seen(_add(operators, row), row)
                _add_overloads(overloads, row)
            elif known.differs(row):
                others.add(row.case_id)
            elif known.times < repeats:
                known.times += another
                known.flaky |= row.flaky or (row.status is Status.PASSED) != known.passed
    for one in seen.values():
        one.tally.unreliable += one.flaky
        one.tally.seldom += one.passed and one.times < repeats
    for operator in operators.values():
        _ask(operator, selection.missing(operator.name))
        _complete(operator)
    unrecorded = _unrecorded(selection, operators)
    return Evidence(
        chosen[-1].target,
        str(chosen[-1].backend["kind"]),
        tuple(chosen),
        dict(sorted(operators.items(), key=lambda item: (item[1].category, item[0]))),
        dict(sorted(overloads.items())),
        dict(seconds),
        (
            *(() if runs else _left_out(ledger, backend, chosen[-1])),
            *differing(chosen),
            *undated(chosen),
            *_cut(ledger, chosen, outcomes),
            *missing_shards(chosen),
            *_few(operators, entries),
            *_partial(operators, unrecorded),
            *_changed(others),
        ),
        unrecorded,
    )


def _ask(operator: OperatorEvidence, missing: Mapping[tuple[str, str], int]) -> None:
    """Have an operator lack the cases that a full run has beside those that are recorded."""
    for place, cases in missing.items():
        operator.tallies[place].missing += cases


def _unrecorded(
    selection: Selection, operators: Mapping[str, OperatorEvidence]
) -> dict[str, OperatorEvidence]:
    found = {}
    for operator, missing in selection.unrecorded():
        if operator.name not in operators:
            one = found[operator.name] = OperatorEvidence(operator.name, operator.category)
            _ask(one, missing)
            _complete(one)
    return found


def _partial(
    operators: Mapping[str, OperatorEvidence], unrecorded: Mapping[str, OperatorEvidence]
) -> Iterator[str]:
    """Warnings where less is recorded than a full run of the built-in suite has."""
    lacking = {name: tally for name, one in operators.items() if (tally := one.everything()).missing}
    if lacking:
        cases = sum(one.total for one in lacking.values())
        wanted = cases + sum(one.missing for one in lacking.values())
        yield (
            f"{cases} of {wanted} cases of {listing(lacking, limit=4)} are recorded; "
            "those that are missing count as not passing"
        )
    if unrecorded:
        yield (
            f"nothing is recorded of {len(unrecorded)} operators of the built-in suite; "
            "shares of its operators count them as not covered"
        )


def _changed(cases: set[str]) -> list[str]:
    """A warning where older records of cases are of something else than the newest one."""
    if not cases:
        return []
    return [
        (
            f"{len(cases)} cases were recorded earlier with other inputs, or other settings of the driver; "
            "those records are not counted"
        )
    ]


def _left_out(ledger: Ledger, backend: str | None, chosen: RunInfo) -> list[str]:
    """A warning where other targets of the driver have runs, unless ``backend`` names one alone."""
    name = chosen.backend["name"]
    if backend not in (None, name):
        return []
    others = {one.target for one in ledger.runs() if one.backend["name"] == name} - {chosen.target}
    return [f"runs of {listing(sorted(others))} are not counted"] if others else []


def _few(operators: Mapping[str, OperatorEvidence], entries: int) -> list[str]:
    """A warning where the suite says that it has more than what is recorded: shares are of that alone."""
    if len(operators) >= entries:
        return []
    return [
        f"{len(operators)} operators are recorded; the suite has {entries}, and the others are not counted"
    ]


def _cut(ledger: Ledger, runs: Sequence[RunInfo], outcomes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A warning for each run that is not whole, unless a later one took over what there is of it."""
    incomplete = ledger.unfinished()
    resumed = False
    for one in reversed(runs):
        if one.run_id in incomplete and not resumed:
            yield f"the run {one.run_id} is not whole: {incomplete[one.run_id]}"
        resumed |= bool(outcomes.get(one.run_id, {}).get("resumed"))


def _ended(outcome: Mapping[str, Any]) -> bool:
    """Whether a run came to its end: of one that did not, a later one may have taken the results over."""
    return bool(outcome) and not any(outcome.get(one) for one in ("interrupted", "stopped", "problems"))


def _timed(outcome: Mapping[str, Any]) -> dict[str, float]:
    """What a run's parts took; a run that others published may say anything."""
    told = outcome.get("seconds")
    pairs = told.items() if isinstance(told, Mapping) else ()
    return {name: float(taken) for name, taken in pairs if isinstance(taken, int | float)}


@dataclass(slots=True)
class _Seen:
    """The newest record of a case, in how many runs it is, and whether they agree."""

    tally: Tally
    row: InitVar[CaseRow]
    inputs: str | None = field(init=False)
    settings: str | None = field(init=False)
    passed: bool = field(init=False)
    flaky: bool = field(init=False)
    times: int = field(init=False, default=1)

    def __post_init__(self, row: CaseRow) -> None:
        self.inputs, self.settings = row.inputs, row.settings
        self.passed, self.flaky = row.status is Status.PASSED, row.flaky

    def differs(self, row: CaseRow) -> bool:
        """Whether an older record is of other inputs, or of other settings of the driver, where it says."""
        pairs = (self.inputs, row.inputs), (self.settings, row.settings)
        return any(new and old and new != old for new, old in pairs)


def runs_of(ledger: Ledger, backend: str | None = None, runs: Sequence[str] = ()) -> list[RunInfo]:
    """The runs of one backend, oldest first; as for :func:`collect`."""
    every = ledger.runs()
    if runs:
        wanted = {ledger.find_run(one) for one in runs}
        every = [one for one in every if one.run_id in wanted]
    if not every:
        raise UsageError(
            f"the ledger {ledger.place} has no run", "record one: optest run --suite builtin --backend NAME"
        )
    name = backend or every[-1].target
    chosen = named(every, name)
    if not chosen:
        names = sorted({one.target for one in every})
        raise UsageError(f"no such run is of the backend {name!r}; there are runs of {listing(names)}")
    targets = sorted({one.target for one in chosen})
    if len(targets) > 1:
        raise UsageError(
            f"{len(targets)} backends are called {name!r}: {listing(targets)}",
            f"name one of them: --backend {targets[0]!r}",
        )
    return chosen


def _add(operators: dict[str, OperatorEvidence], row: CaseRow) -> Tally:
    operator = operators.get(row.op)
    if operator is None:
        operator = operators[row.op] = OperatorEvidence(row.op, row.category)
    if row.origin and (declared := row.origin.declared):
        operator.dtypes.update(declared.dtypes)
        operator.phases.update(declared.phases)
        operator.declared_gradients = True
        operator.gradients.update(declared.gradients)
    if row.phase == FORWARD and _is_edge(row):
        operator.edges[row.dtype].add(row)
    tally = operator.tallies[row.phase, row.dtype]
    tally.add(row)
    tally.samples += row.origin.among if row.origin else 0
    return tally


def _add_overloads(overloads: dict[str, OverloadEvidence], row: CaseRow) -> None:
    for name in row.origin.overloads if row.origin else ():
        found = overloads.setdefault(name, OverloadEvidence(name))
        found.operators.add(row.op)
        found.tallies[row.phase, row.dtype].add(row)


def _class_of(row: CaseRow) -> str:
    """How a case ran: as its backend says, unless it declined or was not asked at all; else nothing."""
    if row.status in (Status.UNSUPPORTED, Status.FALLBACK):
        return row.status.value
    if row.status is Status.SKIPPED:
        return "untestable"
    return row.origin.form if row.origin else ""


def _larger(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _is_edge(row: CaseRow) -> bool:
    shapes = row.record["shapes"].values()
    return any(0 in shape or all(size == 1 for size in shape) for shape in shapes)


def _complete(operator: OperatorEvidence) -> None:
    """What was run applies, whether or not it was declared to."""
    for phase, dtype in operator.tallies:
        operator.phases.add(phase)
        operator.dtypes.add(dtype)
        if phase == "backward" and not operator.declared_gradients:
            operator.gradients.add(dtype)
    operator.phases.add(FORWARD)
