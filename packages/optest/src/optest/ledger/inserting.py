"""Writes runs, cases and metrics into the ledger's tables, within the caller's transaction.

Not here: when they are written (``store``), converting records to rows (``rows``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from ..core.result import RunInfo
from .tables import BACKENDS, CASES, ENVIRONMENTS, METRICS, RUNS

_BATCH = 1000
"""How many rows are copied at a time."""


def insert_run(connection: Connection, run: RunInfo, summary: str | None) -> None:
    """Add a run without cases."""
    backend = {key: run.backend.get(key) or "" for key in ("kind", "name", "chip")}
    facts = {"facts": json.dumps(dict(run.environment), sort_keys=True)}
    connection.execute(
        insert(RUNS).values(
            run_id=run.run_id,
            started=run.started,
            version=run.version,
            command_line=run.command_line,
            seed=run.seed,
            environment=_number_of(connection, ENVIRONMENTS, facts),
            backend=_number_of(connection, BACKENDS, backend),
            summary=summary,
            planned=run.planned,
            config=run.backend.get("config"),
        )
    )


def set_summary(connection: Connection, run_id: str, summary: str | None) -> bool:
    """Mark a run as over, unless it is already or ``summary`` is None; return whether that changed it."""
    if summary is None:
        return False
    unset = RUNS.c.run_id == run_id, RUNS.c.summary.is_(None)
    return connection.execute(update(RUNS).where(*unset).values(summary=summary)).rowcount > 0


def insert_cases(
    connection: Connection, rows: list[dict[str, Any]], metrics: list[list[dict[str, Any]]]
) -> None:
    """Add cases of one run, and their metrics with the new numbers of the cases."""
    if not rows:
        return
    connection.execute(insert(CASES), rows)
    added = CASES.c.run_id == rows[0]["run_id"], CASES.c.case_id.in_([one["case_id"] for one in rows])
    numbers = {
        row.case_id: row.id for row in connection.execute(select(CASES.c.case_id, CASES.c.id).where(*added))
    }
    flat = [
        {**metric, "case": numbers[row["case_id"]]}
        for row, several in zip(rows, metrics, strict=True)
        for metric in several
    ]
    if flat:
        connection.execute(insert(METRICS), flat)


def copy_cases(source: Connection, target: Connection, run_id: str) -> int:
    """Copy the cases of a run that ``target`` does not have yet; return how many there were."""
    last = added = 0
    while True:
        query = select(CASES).where(CASES.c.run_id == run_id, CASES.c.id > last).order_by(CASES.c.id)
        read = [dict(row) for row in source.execute(query.limit(_BATCH)).mappings()]
        if not read:
            return added
        last = read[-1]["id"]
        ids = [row["case_id"] for row in read]
        here = CASES.c.run_id == run_id, CASES.c.case_id.in_(ids)
        known = set(target.scalars(select(CASES.c.case_id).where(*here)))
        rows = [row for row in read if row["case_id"] not in known]
        metrics: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
        for metric in source.execute(select(METRICS).where(METRICS.c.case.in_(list(metrics)))).mappings():
            metrics[metric["case"]].append({key: value for key, value in metric.items() if key != "id"})
        insert_cases(
            target, [{k: v for k, v in row.items() if k != "id"} for row in rows], list(metrics.values())
        )
        added += len(rows)


def _number_of(connection: Connection, table: Any, values: Mapping[str, str]) -> int:
    """Return the number of the row with these values, after adding it if there is none."""
    query = select(table.c.id).filter_by(**values)
    found = connection.scalar(query)
    if found is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(table).values(**values))
        except IntegrityError:  # another process added it in the meantime
            pass
        found = connection.scalar(query)
    assert isinstance(found, int)
    return found
