"""Finds the runs of a backend, and orders runs by date.

A run dated in the future was recorded with a wrong clock. It would be the newest one until that
day and hide all later runs, so it counts as the oldest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from sqlalchemy import ColumnElement, case

from ..core.result import RunInfo
from .tables import RUNS

_CLOCKS_DIFFER = datetime.timedelta(minutes=5)
"""The largest difference between clocks that are set correctly."""


def named(runs: Iterable[RunInfo], backend: str) -> list[RunInfo]:
    """Return the runs of the target ``backend`` or, if it has none, of all targets of that driver."""
    every = list(runs)
    exact = [one for one in every if one.target == backend]
    return exact or [one for one in every if one.backend["name"] == backend]


def oldest_first() -> tuple[ColumnElement[str], ColumnElement[str]]:
    """Return the terms by which a query orders runs, oldest first."""
    return case((RUNS.c.started > _latest(), ""), else_=RUNS.c.started), RUNS.c.run_id


def newest_first() -> tuple[ColumnElement[str], ...]:
    """Return the terms by which a query orders runs, newest first."""
    return tuple(one.desc() for one in oldest_first())


def undated(runs: list[RunInfo]) -> list[str]:
    """Return a warning for each run that is dated in the future."""
    return [
        f"run {one.run_id} is dated in the future ({one.started}): it counts as the oldest"
        for one in runs
        if one.started > _latest()
    ]


def _latest() -> str:
    """Return the latest date that a run can have now, in the format of the dates of runs."""
    return (datetime.datetime.now(datetime.UTC) + _CLOCKS_DIFFER).isoformat(timespec="microseconds")
