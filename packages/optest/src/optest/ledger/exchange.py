"""Moves runs from one ledger to another in parts: what a publisher sends, and what a server adds.

A case of a run is added only once, however often it arrives, so any part may be sent again. Not
here: the wire format (``optest.dashboard``), copying whole ledgers (``Ledger.merge``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.engine import RowMapping

from ..core.result import CaseResult, RunInfo
from ..errors import UsageError
from .rows import ACCURACY, case_result
from .tables import CASES, METRICS

_METRICS = ("output", "passed", "count", "mismatches", "max_abs", "max_rel", "max_ulp")


def outgoing(connection: Connection, run: RunInfo, size: int) -> Iterator[list[CaseResult]]:
    """Yield the cases of ``run`` in parts of ``size``, with comparisons as far as the ledger keeps them."""
    last = 0
    while True:
        query = select(CASES).where(CASES.c.run_id == run.run_id, CASES.c.id > last)
        rows = connection.execute(query.order_by(CASES.c.id).limit(size)).mappings().all()
        if not rows:
            return
        last = rows[-1]["id"]
        metrics = _metrics(connection, [row["id"] for row in rows])
        yield [replace(case_result(row, run.backend), comparisons=tuple(metrics[row["id"]])) for row in rows]


def unknown(connection: Connection, run_id: str, results: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the ``results`` that the run does not have yet, each id once."""
    ids = [one.case_id for one in results]
    query = select(CASES.c.case_id).where(CASES.c.run_id == run_id, CASES.c.case_id.in_(ids))
    known = set(connection.scalars(query))
    found = {one.case_id: one for one in reversed(results) if one.case_id not in known}
    return list(reversed(found.values()))


def check_same(known: RunInfo, sent: RunInfo) -> None:
    """Raise :class:`UsageError` if two runs with one id are not the same run."""
    differing = [name for name, value in known.to_dict().items() if value != sent.to_dict()[name]]
    if differing:
        raise UsageError(
            f"another run has the id {sent.run_id}: {', '.join(differing)} differ", "nothing was added"
        )


def _metrics(connection: Connection, numbers: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    query = select(METRICS).where(METRICS.c.case.in_(numbers)).order_by(METRICS.c.id)
    row: RowMapping
    for row in connection.execute(query).mappings():
        accuracy = {key: row[name] for name, key in ACCURACY.items()}
        measured = None if all(one is None for one in accuracy.values()) else accuracy
        found[row["case"]].append({**{name: row[name] for name in _METRICS}, "accuracy": measured})
    return found
