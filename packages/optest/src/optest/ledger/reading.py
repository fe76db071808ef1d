"""Reads cases as light rows, and counts of them, for coverage and dashboards, which read many.

Not here: whole records (``Ledger.results``), what changed between runs (``difference``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select

from ..core.origin import Origin
from ..core.result import Status
from .order import newest_first
from .tables import CASES, METRICS, RUNS

_CHUNK = 5000
_COLUMNS = (
    CASES.c.id, CASES.c.case_id, CASES.c.op, CASES.c.category, CASES.c.dtypes, CASES.c.phase,
    CASES.c.status, CASES.c.reason, CASES.c.duration_s, CASES.c.flaky, CASES.c.rest,
    CASES.c.inputs, CASES.c.settings,
)  # fmt: skip
_INEXACT = ("float", "bfloat", "complex")

Runs = str | Sequence[str]
"""The id of a run, or several ids; of several runs, the newest record of each case counts."""


def main_dtype(dtypes: str) -> str:
    """Return the dtype that represents a case: its first floating or complex one, else its first."""
    names = dtypes.split(",")
    return next((one for one in names if one.startswith(_INEXACT)), names[0])


@dataclass(frozen=True)
class CaseRow:
    """One recorded case.

    ``ulp`` is the largest error against a wider reference if there is one, else against the expected
    values; ``control_ulp`` is the control's error. Both are set only if metrics were requested.
    """

    number: int
    case_id: str
    op: str
    category: str
    dtypes: str
    phase: str
    status: Status
    reason: str
    duration_s: float
    flaky: bool
    rest: str
    inputs: str | None = None
    settings: str | None = None
    ulp: float | None = None
    control_ulp: float | None = None

    @property
    def dtype(self) -> str:
        return main_dtype(self.dtypes)

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The fields that have no column: shapes, attributes, seed, rerun and so on."""
        found: Mapping[str, Any] = json.loads(self.rest)
        return found

    @property
    def attributes(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record["attributes"]
        return found

    @cached_property
    def origin(self) -> Origin | None:
        """The case's place in one of PyTorch's databases; None for optest's own operators."""
        found = self.record.get("origin")
        return None if found is None else Origin.from_dict(found)


class Group(NamedTuple):
    """The number of cases that agree in all the other fields."""

    op: str
    category: str
    dtypes: str
    phase: str
    status: Status
    cases: int


def read_cases(
    connection: Connection,
    runs: Runs,
    *,
    op: str | None = None,
    statuses: Iterable[Status] | None = None,
    metrics: bool = False,
) -> Iterator[CaseRow]:
    """Yield the cases of ``runs`` in the order they were written; ``metrics`` adds errors in ULP."""
    conditions = _of(runs, op)
    if statuses is not None:
        conditions.append(CASES.c.status.in_([one.value for one in statuses]))
    query = select(*_COLUMNS).where(*conditions).order_by(CASES.c.id)
    worst = _worst(connection, conditions) if metrics else {}
    for row in connection.execution_options(yield_per=_CHUNK).execute(query):
        ulp, control_ulp = worst.get(row.id, (None, None))
        found = row[:6], Status(row.status), row[7:]  # in the order of _COLUMNS
        yield CaseRow(*found[0], found[1], *found[2], ulp=ulp, control_ulp=control_ulp)


def read_groups(connection: Connection, runs: Runs) -> list[Group]:
    """Return counts of the cases of ``runs``, made by the database, sorted by category, then operator."""
    keys = (CASES.c.op, CASES.c.category, CASES.c.dtypes, CASES.c.phase, CASES.c.status)
    query = select(*keys, func.count()).where(*_of(runs)).group_by(*keys)
    found = [
        Group(op, category, dtypes, phase, Status(status), cases)
        for op, category, dtypes, phase, status, cases in connection.execute(query)
    ]
    return sorted(found, key=lambda one: (one.category, *one))


def read_totals(connection: Connection) -> dict[str, Counter[Status]]:
    """Return, for each run, how many of its cases ended with each status."""
    query = select(CASES.c.run_id, CASES.c.status, func.count()).group_by(CASES.c.run_id, CASES.c.status)
    found: dict[str, Counter[Status]] = {}
    for run_id, status, count in connection.execute(query):
        found.setdefault(run_id, Counter())[Status(status)] = count
    return found


def _of(runs: Runs, op: str | None = None) -> list[ColumnElement[bool]]:
    """Return the conditions that select the cases of ``runs``, or those of one operator in them."""
    named = [CASES.c.op == op] if op is not None else []
    if isinstance(runs, str):
        return [CASES.c.run_id == runs, *named]
    place = func.row_number().over(partition_by=CASES.c.case_id, order_by=newest_first()).label("place")
    recorded = select(CASES.c.id, place).join(RUNS).where(CASES.c.run_id.in_(runs), *named).subquery()
    return [CASES.c.id.in_(select(recorded.c.id).where(recorded.c.place == 1))]


def _worst(
    connection: Connection, conditions: Iterable[ColumnElement[bool]]
) -> dict[int, tuple[float | None, float | None]]:
    """Return, for each case, the largest error of its outputs and the control's largest error."""
    largest, expected, control = (
        func.max(METRICS.c[name]) for name in ("error_ulp", "max_ulp", "control_ulp")
    )
    query = (
        select(METRICS.c.case, func.coalesce(largest, expected), control)
        .join(CASES, CASES.c.id == METRICS.c.case)
        .where(*conditions)
        .group_by(METRICS.c.case)
    )
    return {row[0]: (row[1], row[2]) for row in connection.execute(query)}
