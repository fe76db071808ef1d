"""The evidence: recorded cases of one backend, counted by operator, dtype and phase.

The newest record of a case counts; older ones only show whether it is reliable. Shards
and partial runs merge automatically, because case ids are the same in every run. A result
that a resumed run took over from a stopped run counts as one execution, not two.
Not here: judging the counts (``criteria``).
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
"""The facts about a run's environment that pages leave out."""
NO_OPERATORS = frozenset({"module", "optim", "python_ref", "hop"})
"""Suites whose entries are built from operators; their records do not count as operators."""


@dataclass
class Tally:
    """The cases of one operator, dtype and phase: how they ended, and why those that failed did not pass.

    ``classes`` counts the cases by how they ran. ``ulp`` is the largest error of a passing case and
    ``control_ulp`` the largest error of eager PyTorch, both against a wider result. ``samples`` is
    how many cases the suite itself says there are, if that was recorded.
    """

    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unreliable: int = 0
    seldom: int = 0
    """How many passing cases were recorded fewer times than the reliability criterion requires."""
    classes: Counter[str] = field(default_factory=Counter)
    ulp: float | None = None
    control_ulp: float | None = None
    samples: int = 0
    missing: int = 0
    """How many cases of a full run have no record."""

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def applicable(self) -> int:
        """How many cases were not skipped."""
        return self.total - self.counts[Status.SKIPPED]

    @property
    def passed(self) -> int:
        return self.counts[Status.PASSED]

    @property
    def clean(self) -> bool:
        """Whether there are results, and every applicable case of a full run passed."""
        return 0 < self.applicable == self.passed and not self.missing

    @property
    def skipped(self) -> bool:
        """Whether there are results, and every case of a full run was skipped."""
        return self.total > 0 == self.applicable and not self.missing

    @property
    def why(self) -> str:
        """The most common reason, in one line."""
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
        """Return the content as JSON-safe data."""
        return {
            "passed": self.passed, "applicable": self.applicable, "total": self.total,
            "samples": self.samples or self.total + self.missing,
            "classes": dict(sorted(self.classes.items())), "reason": self.why,
            "ulp": self.ulp, "eager_ulp": self.control_ulp,
            **({"missing": self.missing} if self.missing else {}),
        }  # fmt: skip


@dataclass
class OperatorEvidence:
    """All records of one operator, including all its variants.

    ``dtypes`` and ``gradients`` are the dtypes that the reference supports, as the suite
    recorded them; ``phases`` are the phases that apply at all. Without such records, they are
    those that were run.
    """

    name: str
    category: str
    dtypes: set[str] = field(default_factory=set)
    gradients: set[str] = field(default_factory=set)
    phases: set[str] = field(default_factory=set)
    declared_gradients: bool = False
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    edges: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """Forward cases with an empty, 0-d or size-1 input, by dtype."""

    def tally(self, phase: str, dtypes: Iterable[str] | None = None) -> Tally:
        """Return the sum of a phase over ``dtypes`` (all if None)."""
        chosen = None if dtypes is None else set(dtypes)
        total = Tally()
        for (one, dtype), tally in self.tallies.items():
            if one == phase and (chosen is None or dtype in chosen):
                total += tally
        return total

    def everything(self) -> Tally:
        """Return the sum of all phases and dtypes."""
        total = Tally()
        for one in self.tallies.values():
            total += one
        return total


@dataclass
class OverloadEvidence:
    """The records of the cases in which eager PyTorch calls an overload.

    ``operators`` are the operators of these cases; ``tallies`` are by phase and dtype.
    """

    name: str
    operators: set[str] = field(default_factory=set)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))


@dataclass
class Evidence:
    """All records of one backend and their runs; ``warnings`` are texts for people.

    ``seconds`` has the times of the parts of all runs, by name, if they were recorded. ``unrecorded`` are
    the operators of the built-in suite without a record; it is empty if no operator of that suite has one.
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
        """The versions used by the runs: ``optest 0.1.0, commit c0ffee, python 3.11, torch 2.13``."""
        facts = {"optest": {one.version for one in self.runs}}
        for run in self.runs:
            for name in sorted(run.environment.keys() - _MACHINE):
                facts.setdefault(name, set()).add(run.environment[name])
        return ", ".join(f"{name} {' and '.join(sorted(values))}" for name, values in facts.items())

    def everything(self) -> Tally:
        """Return the sum over all operators."""
        total = Tally()
        for one in self:
            total += one.everything()
        return total


def collect(
    ledger: Ledger, *, backend: str | None = None, runs: Sequence[str] = (), repeats: int = 2
) -> Evidence:
    """Read the runs of one backend, by default the backend of the newest run.

    ``runs`` limits this to some runs, by id or its beginning. ``repeats`` is how many results of a case
    the reliability criterion considers. Raises :class:`UsageError` if there is nothing to read.
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
    """Count the cases of a full run that have no record as missing in ``operator``."""
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
    """Yield warnings if fewer cases or operators are recorded than a full run of the built-in suite has."""
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
    """Return a warning if older records of cases have other inputs or settings than the newest ones."""
    if not cases:
        return []
    return [
        (
            f"{len(cases)} cases were recorded earlier with other inputs, or other settings of the driver; "
            "those records are not counted"
        )
    ]


def _left_out(ledger: Ledger, backend: str | None, chosen: RunInfo) -> list[str]:
    """Return a warning if other targets of the driver have runs, unless ``backend`` names a single one."""
    name = chosen.backend["name"]
    if backend not in (None, name):
        return []
    others = {one.target for one in ledger.runs() if one.backend["name"] == name} - {chosen.target}
    return [f"runs of {listing(sorted(others))} are not counted"] if others else []


def _few(operators: Mapping[str, OperatorEvidence], entries: int) -> list[str]:
    """Return a warning if the suite has more operators than are recorded; shares count only recorded ones."""
    if len(operators) >= entries:
        return []
    return [
        f"{len(operators)} operators are recorded; the suite has {entries}, and the others are not counted"
    ]


def _cut(ledger: Ledger, runs: Sequence[RunInfo], outcomes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning for each incomplete run, unless a later run took over its results."""
    incomplete = ledger.unfinished()
    resumed = False
    for one in reversed(runs):
        if one.run_id in incomplete and not resumed:
            yield f"the run {one.run_id} is not whole: {incomplete[one.run_id]}"
        resumed |= bool(outcomes.get(one.run_id, {}).get("resumed"))


def _ended(outcome: Mapping[str, Any]) -> bool:
    """Whether a run finished; if it did not, a later run may have taken over its results."""
    return bool(outcome) and not any(outcome.get(one) for one in ("interrupted", "stopped", "problems"))


def _timed(outcome: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of a run's parts by name; a published run may contain anything here."""
    told = outcome.get("seconds")
    pairs = told.items() if isinstance(told, Mapping) else ()
    return {name: float(taken) for name, taken in pairs if isinstance(taken, int | float)}


@dataclass(slots=True)
class _Seen:
    """The newest record of a case, and in how many runs the case was recorded."""

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
        """Whether an older record is known to have other inputs or other settings of the driver."""
        pairs = (self.inputs, row.inputs), (self.settings, row.settings)
        return any(new and old and new != old for new, old in pairs)


def runs_of(ledger: Ledger, backend: str | None = None, runs: Sequence[str] = ()) -> list[RunInfo]:
    """Return the runs of one backend, oldest first; the arguments are as in :func:`collect`."""
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
    """Return how a case ran: ``unsupported``, ``fallback``, ``untestable`` if skipped, or else its form."""
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
    """Add the phases and dtypes that were run to the declared ones."""
    for phase, dtype in operator.tallies:
        operator.phases.add(phase)
        operator.dtypes.add(dtype)
        if phase == "backward" and not operator.declared_gradients:
            operator.gradients.add(dtype)
    operator.phases.add(FORWARD)
