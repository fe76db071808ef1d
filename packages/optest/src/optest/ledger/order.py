"""Which runs are of one backend, and which of two is newer, judged by their dates.

A run whose date is yet to come was recorded with a wrong clock. It would be the newest one until that
day, and hide every run after it; so it counts as the oldest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from sqlalchemy import ColumnElement, case

from ..core.result import RunInfo
from .tables import RUNS

_CLOCKS_DIFFER = datetime.timedelta(minutes=5)
"""By this much at most where they are set right."""


def named(runs: Iterable[RunInfo], backend: str) -> list[RunInfo]:
    """The runs of a target, or of every target of the driver with that name."""
    every = list(runs)
    exact = [one for one in every if one.target == backend]
    return exact or [one for one in every if one.backend["name"] == backend]


def oldest_first() -> tuple[ColumnElement[str], ColumnElement[str]]:
    """What a query orders runs by."""
    return case((RUNS.c.started > _latest(), ""), else_=RUNS.c.started), RUNS.c.run_id


def newest_first() -> tuple[ColumnElement[str], ...]:
    """The other way round."""
    return tuple(one.desc() for one in oldest_first())


def undated(runs: list[RunInfo]) -> list[str]:
    """A warning for each run with an impossible date."""
    return [
        f"run {one.run_id} is dated in the future ({one.started}): it counts as the oldest"
        for one in runs
        if one.started > _latest()
    ]


def _latest() -> str:
    """The latest date that a run can have now, in the form that runs have."""
    return (datetime.datetime.now(datetime.UTC) + _CLOCKS_DIFFER).isoformat(timespec="microseconds")
