"""Converts records to rows of the ledger, and back. No queries here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy.engine import RowMapping

from ..core.result import CaseResult

ACCURACY = {"error_ulp": "ulp_error", "control_ulp": "control_ulp_error"}
"""The columns of metrics for errors, with their names in a comparison's ``accuracy``."""
_COLUMNS = ("case_id", "op", "category", "phase", "status", "reason", "duration_s", "attempts", "flaky")
_HASHES = ("inputs", "settings")
_REST = ("shapes", "attributes", "seed", "stderr_tail", "exit_code", "signal", "rerun")


def case_row(run_id: str, result: CaseResult) -> dict[str, Any]:
    """Return ``result`` as a row of ``cases``, without its number."""
    rest = {name: getattr(result, name) for name in _REST}
    rest |= {"shapes": dict(result.shapes), "attributes": dict(result.attributes)}
    rest |= {} if result.origin is None else {"origin": result.origin.to_dict()}
    return {
        "run_id": run_id,
        **{name: getattr(result, name) for name in _COLUMNS},
        "dtypes": ",".join(result.dtypes),
        "status": result.status.value,
        "rest": json.dumps(rest, separators=(",", ":")),
        "reason": result.reason.replace("\0", "\ufffd"),  # PostgreSQL's texts have no NUL
        **{name: getattr(result, name) or None for name in _HASHES},
    }


def metric_rows(case: int, result: CaseResult) -> list[dict[str, Any]]:
    """Return the metrics of ``result``, which is row ``case`` of ``cases``."""
    return [
        {
            "case": case,
            "output": one["output"],
            "passed": one["passed"],
            "count": one["count"],
            "mismatches": one["mismatches"],
            **{name: _number(one[name]) for name in ("max_abs", "max_rel", "max_ulp")},
            **{name: _number((one.get("accuracy") or {}).get(key)) for name, key in ACCURACY.items()},
        }
        for one in result.comparisons
    ]


def case_result(row: RowMapping, backend: Mapping[str, str | None]) -> CaseResult:
    """Return a row of ``cases`` as a record, without its comparisons."""
    return CaseResult.from_dict(
        {
            **json.loads(row["rest"]),
            **{name: row[name] for name in _COLUMNS},
            **{name: row[name] or "" for name in _HASHES},
            "dtypes": row["dtypes"].split(",") if row["dtypes"] else [],
            "backend": backend,
        }
    )


def _number(value: Any) -> float | None:
    """Return a metric as the database stores it: infinities stay, NaN becomes NULL."""
    if value is None:
        return None
    number = float(value)
    return None if math.isnan(number) else number
