"""Finds what changed from one recorded run to another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from ..core.result import FAILURES, RunInfo, Status
from ..names import listing
from .tables import CASES, METRICS

SLOWER, LEAST_S = 2.0, 0.01
"""A time has changed if it differs by this factor and by this many seconds; less is noise."""


@dataclass(frozen=True)
class Change:
    """One case that changed; ``text`` says how."""

    case_id: str
    op: str
    text: str


@dataclass
class Difference:
    """The changes from ``run_a`` to ``run_b``.

    ``newly_failing`` includes failing cases that the first run did not have. ``other``
    has all further changes of status, such as passed to unsupported. ``only_a`` and ``only_b``
    count the cases that only one run has. ``other_inputs`` counts cases that both runs have,
    but with different inputs (from another generator, for example); they are not compared.
    ``warnings`` say which versions differ between the runs.
    """

    run_a: str
    run_b: str
    newly_failing: list[Change] = field(default_factory=list)
    newly_passing: list[Change] = field(default_factory=list)
    other: list[Change] = field(default_factory=list)
    accuracy: list[Change] = field(default_factory=list)
    time: list[Change] = field(default_factory=list)
    common: int = 0
    only_a: int = 0
    only_b: int = 0
    other_inputs: int = 0
    warnings: tuple[str, ...] = ()

    def _kinds(self) -> Iterator[tuple[str, list[Change]]]:
        yield "newly failing", self.newly_failing
        yield "newly passing", self.newly_passing
        yield "other status", self.other
        yield "accuracy", self.accuracy
        yield "time", self.time

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the kind, case, operator and text of each change."""
        return [(kind, one.case_id, one.op, one.text) for kind, changes in self._kinds() for one in changes]

    def text(self) -> str:
        """Return the numbers of changes in one line."""
        counts = ", ".join(f"{len(changes)} {kind}" for kind, changes in self._kinds())
        return (
            f"{self.run_a} → {self.run_b}: {self.common} cases in both, {self.only_a} only in the first, "
            f"{self.only_b} only in the second{self._others()}; {counts}"
        )

    def _others(self) -> str:
        return f", {self.other_inputs} with other inputs, not compared" if self.other_inputs else ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-safe data."""
        return asdict(self)


def differing(runs: Sequence[RunInfo]) -> tuple[str, ...]:
    """Return a warning for each version that differs between ``runs``, which are merged or compared."""
    told = []
    facts = {"optest": [one.version for one in runs]}
    for name in sorted({key for one in runs for key in one.environment} - {"cpu", "cpus", "platform"}):
        facts[name] = [one.environment[name] for one in runs if name in one.environment]
    for name, values in facts.items():
        versions = list(dict.fromkeys(values))
        if len(versions) > 1:
            told.append(f"the runs were recorded with different versions of {name}: {listing(versions)}")
    return tuple(told)


def apart(run_a: RunInfo, run_b: RunInfo) -> tuple[str, ...]:
    """Return a warning if the two runs are of different backends."""
    if run_a.target == run_b.target:
        return ()
    return (f"the runs are of different backends: {run_a.target} and {run_b.target}",)


def compare_runs(connection: Connection, run_a: str, run_b: str) -> Difference:
    """Compare two runs of one ledger case by case; the join is done in the database."""
    found = Difference(run_a, run_b)
    a, b = CASES.alias("a"), CASES.alias("b")
    named = and_(a.c.case_id == b.c.case_id, a.c.run_id == run_a, b.c.run_id == run_b)
    both = and_(named, _same(a, b))
    found.common = _count(connection, select(func.count()).select_from(a.join(b, both)))
    found.other_inputs = _count(connection, select(func.count()).select_from(a.join(b, named))) - found.common
    found.only_a = _count(connection, _cases_in(run_a)) - found.common - found.other_inputs
    found.only_b = _count(connection, _cases_in(run_b)) - found.common - found.other_inputs
    changed = select(b.c.case_id, b.c.op, a.c.status, b.c.status.label("now"), b.c.reason)
    for row in connection.execute(changed.join(b, both).where(a.c.status != b.c.status).order_by(b.c.id)):
        _status(found).get(_kind(row), found.other).append(_change(row))
    fresh = select(b.c.case_id, b.c.op, b.c.reason, b.c.status.label("now"))
    known = select(a.c.case_id).join(b, both)
    failing = b.c.status.in_([one.value for one in FAILURES])
    fresh = fresh.where(b.c.run_id == run_b, failing, b.c.case_id.not_in(known)).order_by(b.c.id)
    for case_id, op, reason, now in connection.execute(fresh):
        found.newly_failing.append(Change(case_id, op, f"new case, {now}: {_line(reason)}"))
    found.accuracy = list(_accuracy(connection, run_a, run_b))
    slow = select(b.c.case_id, b.c.op, a.c.duration_s, b.c.duration_s.label("now")).join(b, both)
    least = func.abs(b.c.duration_s - a.c.duration_s) >= LEAST_S
    factor = or_(b.c.duration_s >= SLOWER * a.c.duration_s, a.c.duration_s >= SLOWER * b.c.duration_s)
    ran = and_(a.c.status == Status.PASSED.value, b.c.status == Status.PASSED.value)
    for case_id, op, before, after in connection.execute(
        slow.where(least, factor, ran).order_by(b.c.duration_s.desc())
    ):
        found.time.append(Change(case_id, op, f"{1e3 * before:.3g} ms → {1e3 * after:.3g} ms"))
    return found


def _accuracy(connection: Connection, run_a: str, run_b: str) -> Iterator[Change]:
    """Yield outputs whose largest error or number of mismatches changed, the largest factor first."""
    a, b = CASES.alias("a"), CASES.alias("b")
    old, new = METRICS.alias("old"), METRICS.alias("new")
    query = (
        select(
            b.c.case_id, b.c.op, new.c.output, old.c.max_abs, new.c.max_abs.label("now"), old.c.max_ulp,
            new.c.max_ulp.label("ulp_now"), old.c.mismatches, new.c.mismatches.label("mismatches_now"),
        )
        .select_from(a)
        .join(b, and_(a.c.case_id == b.c.case_id, a.c.run_id == run_a, b.c.run_id == run_b, _same(a, b)))
        .join(old, old.c.case == a.c.id)
        .join(new, and_(new.c.case == b.c.id, new.c.output == old.c.output))
        .where(or_(old.c.max_abs != new.c.max_abs, old.c.mismatches != new.c.mismatches))
    )  # fmt: skip
    rows = sorted(connection.execute(query), key=lambda row: -_factor(row.max_abs, row.now))
    for row in rows:
        text = f"{row.output}: max abs {row.max_abs:.3g} → {row.now:.3g}"
        if row.max_ulp is not None and row.ulp_now is not None:
            text += f", {row.max_ulp:.6g} → {row.ulp_now:.6g} ULP"
        if row.mismatches != row.mismatches_now:
            text += f", mismatches {row.mismatches} → {row.mismatches_now}"
        yield Change(row.case_id, row.op, text)


def _same(a: Any, b: Any) -> ColumnElement[bool]:
    """Whether two records of one case have the same inputs, as far as that is known."""
    return or_(a.c.inputs == b.c.inputs, a.c.inputs.is_(None), b.c.inputs.is_(None))


def _factor(before: float, now: float) -> float:
    if before == now:
        return 1.0
    small, large = sorted((before, now))
    return large / small if small and math.isfinite(large) else math.inf


def _status(found: Difference) -> dict[str, list[Change]]:
    return {"failing": found.newly_failing, "passing": found.newly_passing}


def _kind(row: Any) -> str:
    before, now = Status(row.status), Status(row.now)
    if now.failed and not before.failed:
        return "failing"
    return "passing" if now is Status.PASSED and before.failed else "other"


def _change(row: Any) -> Change:
    reason = f": {_line(row.reason)}" if row.reason else ""
    return Change(row.case_id, row.op, f"{row.status} → {row.now}{reason}")


def _line(text: str) -> str:
    return text.partition("\n")[0]


def _cases_in(run_id: str) -> Select[Any]:
    return select(func.count()).select_from(CASES).where(CASES.c.run_id == run_id)


def _count(connection: Connection, query: Select[Any]) -> int:
    return connection.scalar(query) or 0
