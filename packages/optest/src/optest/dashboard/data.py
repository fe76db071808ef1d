"""The data of the pages as JSON-safe arrays, made from a ledger, for static and live pages.

Names are listed once and referred to by index, so that 150,000 cases stay small. Pages load
the index and overviews first, and the cases of an operator when they need them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.result import FAILURES, RunInfo, Status
from ..coverage.snapshot import take_snapshot
from ..ledger import Ledger
from ..ledger.reading import CaseRow, Runs, main_dtype

STATUSES = tuple(Status)
TREND = 50
"""How many runs, the newest ones, the trend shows."""
_KINDS = ("float", "bfloat", "complex", "int", "uint", "bool")
_FAILURES = 20_000
_REASON = 300
"""How many characters of a reason a run's list of failures shows; ``_FAILURES`` limits its length.

The list of an operator has all failures and full reasons.
"""
PHASES = (
    "forward", "backward", "second_order", "forward_mode", "out", "inplace", "noncontiguous", "reference",
    "special", "errors", "promotion", "determinism", "dynamic_batch", "automatic_dynamic",
    "views", "memory", "transfer", "perf", "stress",
)  # fmt: skip
"""The phases in the order in which they are shown; others follow."""


def key_of(name: str) -> str:
    """Return the key of a run, backend or operator in file names and URLs; any name gives a valid key."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Shown:
    """What a page shows: one run, or the newest result of every case in several runs of a backend."""

    newest: RunInfo
    together: tuple[str, ...] = ()
    """The ids of the runs, if there are several."""

    @property
    def runs(self) -> Runs:
        return self.together or self.newest.run_id

    @property
    def backend(self) -> str:
        return self.newest.target

    @property
    def title(self) -> str:
        return f"newest results of {len(self.together)} runs" if self.together else self.newest.run_id

    @property
    def key(self) -> str:
        return key_of(f"backend {self.backend}" if self.together else self.newest.run_id)


def together(runs: Sequence[RunInfo]) -> Shown:
    """Combine runs of one backend, given oldest first, into one view."""
    return Shown(runs[-1], tuple(one.run_id for one in runs))


def index(ledger: Ledger, shown: Sequence[Shown], *, live: bool = False) -> dict[str, Any]:
    """Return the index: what is shown, and the trend over all runs."""
    totals, unfinished = ledger.totals(), ledger.unfinished()
    return {
        "live": live,
        "statuses": [one.value for one in STATUSES],
        "failures": [one.value for one in STATUSES if one in FAILURES],
        "runs": [_described(one, unfinished) for one in shown],
        "trend": [
            _point(one, totals.get(one.run_id, Counter()), unfinished.get(one.run_id, ""))
            for one in ledger.runs()[-TREND:]
        ],
    }


def overview(ledger: Ledger, runs: Runs) -> dict[str, Any]:
    """Return counts of cases; ``cells`` are [operator, dtype, phase, [status, cases, …]] as indices."""
    groups = ledger.groups(runs)
    categories = {one.op: one.category for one in groups}
    operators = _Names(categories)
    dtypes = _Names(sorted({main_dtype(one.dtypes) for one in groups}, key=dtype_order))
    phases = _Names(sorted({one.phase for one in groups}, key=_phase_order))
    cells: dict[tuple[int, int, int], Counter[int]] = defaultdict(Counter)
    for one in groups:
        place = operators[one.op], dtypes[main_dtype(one.dtypes)], phases[one.phase]
        cells[place][STATUSES.index(one.status)] += one.cases
    return {
        "operators": operators.names,
        "keys": [key_of(one) for one in operators.names],
        "categories": list(categories.values()),
        "dtypes": dtypes.names,
        "phases": phases.names,
        "cells": [
            [*place, [number for pair in sorted(counts.items()) for number in pair]]
            for place, counts in sorted(cells.items())
        ],
    }


def operator_cases(rows: Iterable[CaseRow]) -> dict[str, Any]:
    """Return the cases of one operator; those that did not pass have details."""
    return {"cases": [_case(one) for one in rows]}


def failures(rows: Iterable[CaseRow]) -> dict[str, Any]:
    """Return the failing cases of a run, each as [operator, dtype, phase, status, id, reason]."""
    listed, count = [], 0
    for one in rows:
        count += 1
        if count <= _FAILURES:
            reason = one.reason.partition("\n")[0][:_REASON]
            listed.append([one.op, one.dtype, one.phase, one.status.value, one.case_id, reason])
    return {"count": count, "failures": listed}


def distributions(rows: Iterable[CaseRow]) -> dict[str, Any]:
    """Return histograms by dtype, of passing cases: errors in ULP, eager's errors in ULP, and times.

    The bins of errors are powers of 2, those of times are powers of the cube root of 10.
    """
    found: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for one in rows:
        if one.status is not Status.PASSED:
            continue
        for kind, ulp in (("ulp", one.ulp), ("control_ulp", one.control_ulp)):
            if ulp is not None:
                found[kind][one.dtype][_power(ulp, 2)] += 1
        found["time"][one.dtype][_power(one.duration_s * 1e6, 10 ** (1 / 3))] += 1
    return {
        kind: {
            dtype: sorted(counts.items())
            for dtype, counts in sorted(by.items(), key=lambda x: dtype_order(x[0]))
        }
        for kind, by in found.items()
    }


def coverage(ledger: Ledger, backend: str) -> dict[str, Any]:
    """Return the stages, and each operator's coverage as [operator, [level, reason or what is missing]]."""
    snapshot = take_snapshot(ledger, backend=backend)
    described = snapshot.to_dict()
    levels = {
        one["operator"]: [one["level"], one["reason"] or "; ".join(one["missing"])]
        for one in described["operators"]
    }
    return {
        "backend": backend, "counts": described["counts"], "stage": described["stage"],
        "warnings": described["warnings"], "operators": sorted(levels.items()),
    }  # fmt: skip


def _described(one: Shown, unfinished: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of a view in the index; ``unfinished`` says for incomplete runs how much there is."""
    runs = one.together or (one.newest.run_id,)
    told = [f"the run {run} is not whole: {unfinished[run]}" for run in runs if run in unfinished]
    return {
        **one.newest.to_dict(), "run_id": one.title, "key": one.key, "coverage": key_of(one.backend),
        "target": one.backend,
        "unfinished": told,
    }  # fmt: skip


def _point(run: RunInfo, counts: Counter[Status], unfinished: str) -> dict[str, Any]:
    failed = sum(counts[one] for one in FAILURES)
    passed = counts[Status.PASSED]
    return {
        "key": key_of(run.run_id), "run": run.run_id, "started": run.started, "backend": run.target,
        "passed": passed, "failed": failed, "other": counts.total() - passed - failed,
        "unfinished": unfinished,
    }  # fmt: skip


class _Names:
    """A list of names that gives the index of each name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._places = {name: place for place, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> int:
        return self._places[name]


def _case(row: CaseRow) -> dict[str, Any]:
    origin = row.origin
    found: dict[str, Any] = {
        "id": row.case_id, "dtype": row.dtype, "phase": row.phase, "status": row.status.value,
        "us": round(row.duration_s * 1e6), "ulp": json_number(row.ulp),
        "eager": json_number(row.control_ulp),
        "sample": origin.sample if origin else None,
    }  # fmt: skip
    if row.status is not Status.PASSED or row.flaky:
        found |= {
            "reason": row.reason,
            "flaky": row.flaky,
            "dtypes": row.dtypes,
            "shapes": [[name, list(shape)] for name, shape in row.record["shapes"].items()],
            "attributes": [[name, _plain(value)] for name, value in row.attributes.items()],
            "origin": origin.describe() if origin else "",
            "values": origin.values if origin else "",
            "rerun": row.record["rerun"],
            "stderr": row.record["stderr_tail"],
        }
    return {name: value for name, value in found.items() if value not in (None, "")}


def json_number(value: float | None) -> float | str | None:
    """Return a number that strict JSON allows; infinities and NaN become text."""
    return value if value is None or math.isfinite(value) else str(value)


def _plain(value: Any) -> Any:
    """Return an attribute as text, unless it is an integer or None."""
    return value if value is None or isinstance(value, int) else str(value)


def _power(value: float, base: float) -> int:
    """Return the exponent of the power of ``base`` at or above ``value``; -1 for 0, 99 if not finite."""
    if not math.isfinite(value):
        return 99
    return -1 if value <= 0 else max(0, math.ceil(math.log(value, base) - 1e-9))


def dtype_order(name: str) -> tuple[int, int, str]:
    """Return a sort key for dtypes: floating kinds come first, and wide dtypes first within a kind."""
    kind = re.match("[a-z]*", name)
    family = kind.group() if kind else ""
    bits = re.search("[0-9]+", name)
    place = _KINDS.index(family) if family in _KINDS else len(_KINDS)
    return place, -int(bits.group()) if bits else 0, name


def _phase_order(name: str) -> tuple[int, str]:
    return (PHASES.index(name) if name in PHASES else len(PHASES), name)


def by_operator(rows: Iterable[CaseRow]) -> Iterator[tuple[str, list[CaseRow]]]:
    """Group cases by operator."""
    found: dict[str, list[CaseRow]] = defaultdict(list)
    for one in rows:
        found[one.op].append(one)
    yield from found.items()
