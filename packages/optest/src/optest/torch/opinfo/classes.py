"""Which entries are not judged by value, and why; declared in ``data/*.toml``.

``random``: judged by distribution. ``uninitialised``: by shape and dtype. ``bounded``: by values
padded to a declared bound, and their count. ``determined``: by what the operator determines of its
results. ``untestable``: not run, but still counted in the denominator.
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
    """A declaration: how entries that match a shell pattern are judged in some or all phases, and why."""

    suite: str
    entry: str
    kind: str
    reason: str
    phases: tuple[str, ...] = ()

    def concerns(self, entry: str, phase: str) -> bool:
        return fnmatchcase(entry, self.entry) and (not self.phases or phase in self.phases)


def class_of(suite: str, entry: str, phase: str) -> Class | None:
    """Return the first declaration of the suite that matches; None if ``entry`` is judged by value."""
    return next((one for one in declared(suite) if one.concerns(entry, phase)), None)


@cache
def declared(suite: str) -> tuple[Class, ...]:
    """Return the declarations for a suite; raises :class:`PlanError` if their file is invalid."""
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
            if set(row) - {"phases"} != {"entries", "reason"}:
                raise PlanError("a class has entries, a reason, and phases or none", file=file, key=kind)
            phases = tuple(row.get("phases", ()))
            found += [Class(suite, entry, kind, row["reason"], phases) for entry in row["entries"]]
    return tuple(found)
