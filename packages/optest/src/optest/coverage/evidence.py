"""The evidence: recorded cases of one backend, counted by operator, dtype and phase.

The newest record of a case counts; older ones say only whether it is reliable. Shards
and partial runs merge by themselves, because case ids are the same in every run.
Not here: what the counts amount to (``criteria``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..core.result import RunInfo, Status
from ..errors import UsageError
from ..ledger import Ledger
from ..ledger.difference import differing
from ..ledger.reading import CaseRow
from ..names import listing

FORWARD = "forward"
EMPTY_SHAPE = "empty shapes"
"""Stands beside phases: forward cases with an empty, 0-d or size-1 input."""


@dataclass
class Tally:
    """Cases of one operator, dtype and phase: how they ended, and the reasons of those that did not pass."""

    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unreliable: int = 0
    seldom: int = 0
    """Passing cases that were recorded fewer times than reliability asks for."""

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
        """Whether there is a result, and every applicable case passed."""
        return 0 < self.applicable == self.passed

    @property
    def why(self) -> str:
        """The commonest reason, in one line."""
        return self.reasons.most_common(1)[0][0] if self.reasons else ""

    def add(self, row: CaseRow) -> None:
        self.counts[row.status] += 1
        if row.status is not Status.PASSED:
            self.reasons[row.reason.partition("\n")[0] or row.status.value] += 1

    def __iadd__(self, other: Tally) -> Tally:
        self.counts += other.counts
        self.reasons += other.reasons
        self.unreliable += other.unreliable
        self.seldom += other.seldom
        return self


@dataclass
class OperatorEvidence:
    """What is recorded of one operator, all its variants together.

    ``dtypes`` and ``gradients`` are those that the reference supports, as the suite
    recorded them; ``phases`` those that apply at all. Without such records they are what
    was run. ``classes`` counts cases that are native, composite, fallback and so on.
    """

    name: str
    category: str
    dtypes: set[str] = field(default_factory=set)
    gradients: set[str] = field(default_factory=set)
    phases: set[str] = field(default_factory=set)
    declared_gradients: bool = False
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    edges: Tally = field(default_factory=Tally)
    classes: Counter[str] = field(default_factory=Counter)

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
class Evidence:
    """Everything that is recorded of one backend, and in which runs; ``warnings`` are for people."""

    backend: str
    kind: str
    runs: tuple[RunInfo, ...]
    operators: dict[str, OperatorEvidence]
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[OperatorEvidence]:
        return iter(self.operators.values())


def collect(
    ledger: Ledger, *, backend: str | None = None, runs: Sequence[str] = (), repeats: int = 2
) -> Evidence:
    """Read the runs of one backend, by default that of the newest run.

    ``runs`` (ids, or their beginnings) narrows it to these. ``repeats``: how many results
    of a case reliability looks at. Raises :class:`UsageError` where there is nothing to read.
    """
    chosen = _chosen(ledger, backend, runs)
    operators: dict[str, OperatorEvidence] = {}
    seen: dict[str, _Seen] = {}
    for run in reversed(chosen):
        for row in ledger.cases(run.run_id):
            known = seen.get(row.case_id)
            if known is None:
                seen[row.case_id] = _Seen(_add(operators, row), row.status is Status.PASSED, 1, row.flaky)
            elif known.times < repeats:
                known.times += 1
                known.flaky |= row.flaky or (row.status is Status.PASSED) != known.passed
    for one in seen.values():
        one.tally.unreliable += one.flaky
        one.tally.seldom += one.passed and one.times < repeats
    for operator in operators.values():
        _complete(operator)
    newest = chosen[-1].backend
    ordered = dict(sorted(operators.items(), key=lambda item: (item[1].category, item[0])))
    return Evidence(str(newest["name"]), str(newest["kind"]), tuple(chosen), ordered, differing(chosen))


@dataclass(slots=True)
class _Seen:
    tally: Tally
    passed: bool
    times: int
    flaky: bool


def _chosen(ledger: Ledger, backend: str | None, runs: Sequence[str]) -> list[RunInfo]:
    every = ledger.runs()
    if runs:
        wanted = {ledger.find_run(one) for one in runs}
        every = [one for one in every if one.run_id in wanted]
    if not every:
        raise UsageError(
            f"the ledger {ledger.place} has no run", "record one: optest run --suite builtin --backend NAME"
        )
    name = backend or every[-1].backend["name"]
    chosen = [one for one in every if one.backend["name"] == name]
    if not chosen:
        names = sorted({str(one.backend["name"]) for one in every})
        raise UsageError(f"no such run is of the backend {name!r}; there are runs of {listing(names)}")
    return chosen


def _add(operators: dict[str, OperatorEvidence], row: CaseRow) -> Tally:
    operator = operators.get(row.op)
    if operator is None:
        operator = operators[row.op] = OperatorEvidence(row.op, row.category)
    attributes = row.attributes
    operator.dtypes.update(str(attributes.get("cpu_dtypes", "")).split())
    operator.phases.update(str(attributes.get("phases", "")).split())
    if "grad_dtypes" in attributes:
        operator.declared_gradients = True
        operator.gradients.update(str(attributes["grad_dtypes"]).split())
    if "class" in attributes:
        operator.classes[str(attributes["class"])] += 1
    if row.phase == FORWARD and _is_edge(row):
        operator.edges.add(row)
    tally = operator.tallies[row.phase, row.dtype]
    tally.add(row)
    return tally


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
