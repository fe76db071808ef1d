"""Convert runs of operators to rows of the inventory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from . import Entry
from .calls import CALLS
from .operator_runs import Forward, backward, forward, in_eager


def rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Run the operators and return a row for each."""
    keys = [(entry.family, entry.name) for entry in entries]
    programs, gradients = forward(keys), backward(keys)
    return [_row(entry, programs[key], gradients[key]) for entry, key in zip(entries, keys, strict=True)]


def _row(entry: Entry, program: Forward, gradient: str) -> dict[str, Any]:
    operator = CALLS[entry.family, entry.name]
    complaints: dict[str, list[str]] = {}
    for item, complaint in program.complaints.items():
        complaints.setdefault(item.dtype_name, [])
        if complaint:
            complaints[item.dtype_name].append(f"{item.call.text}: {complaint}")
    dtypes = [dtype for dtype, found in complaints.items() if not found]
    reasons = [operator.reason] if operator.reason else []
    if operator.in_eager:
        reasons.append(in_eager(operator.in_eager))
    reasons += [f"{dtype}: {found[0]}" for dtype, found in complaints.items() if found]
    if gradient not in ("equal", "none"):
        reasons.append(f"gradient of {gradient}")
    status = "composite" if program.composites else "lowered"
    if not dtypes:
        status = "differs" if program.lowered else "missing"
    return {
        "family": entry.family,
        "name": entry.name,
        "calls": [call.text for call in operator.calls],
        "status": status,
        "composites": sorted(program.composites),
        "backward": gradient if gradient in ("equal", "none") else "differs",
        "dtypes": dtypes,
        "reason": _HERE.sub("", "; ".join(reasons)),
    }


_HERE = re.compile(r" at \S*operator_runs\.py:\d+")
"""The source line in an error's text: not user code here but this package's, with a path of this machine."""
