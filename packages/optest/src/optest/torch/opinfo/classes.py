"""Which entries are judged in another way than by value, and why: data, from ``data/*.toml``.

``random``: by distribution. ``uninitialised``: by shape, dtype and stride. ``bounded``:
values padded to a declared bound, and a count. ``determined``: what the operator
determines of its results. ``untestable``: not at all; it stays in the denominator.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from ...errors import PlanError

KINDS = ("random", "uninitialised", "bounded", "determined", "untestable")
_DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class Class:
    """Entries of one suite that match a shell pattern, how they are judged, and why."""

    suite: str
    entry: str
    kind: str
    reason: str


def class_of(suite: str, entry: str) -> Class | None:
    """How ``entry`` is judged, if not by value: the first of its suite's declarations that matches."""
    return next((one for one in declared(suite) if fnmatchcase(entry, one.entry)), None)


@cache
def declared(suite: str) -> tuple[Class, ...]:
    """What is declared for a suite; raises :class:`PlanError` for a file that is not in order."""
    file = _DATA / f"{suite}.toml"
    if not file.exists():
        return ()
    found = []
    for kind, rows in tomllib.loads(file.read_text()).items():
        if kind not in KINDS:
            raise PlanError(
                "there is no such class of entries", file=file, key=kind, allowed=", ".join(KINDS)
            )
        for row in rows:
            if set(row) != {"entries", "reason"}:
                raise PlanError("a class has entries and a reason", file=file, key=kind)
            found += [Class(suite, entry, kind, row["reason"]) for entry in row["entries"]]
    return tuple(found)
