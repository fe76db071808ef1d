"""Declared gaps: what a backend is known not to do, with the reason, in TOML next to the backend.

    [[gap]]
    operator = "conv2d"            # or a pattern such as "conv*"
    dtype = "bfloat16"             # optional, as are phase, attributes, shapes and cases (ids)
    shapes = { input0 = "0,*" }    # patterns too
    partial = true                 # some of its cases pass, depending on their values
    varies = true                  # some or all of its cases pass on other machines
    reason = "no bfloat16 accumulator"
    link = "https://tracker.example/42"
    expires = 2027-01-31

A case inside a gap is expected to fail (or to be unsupported). If it passes, this unexpected
pass fails the run, unless the gap is ``partial`` or ``varies``. The run also fails if a gap has
expired, if a gap matches nothing in a complete run, and if nothing fails inside a partial gap in
a complete run with the values of the default seed.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..core.result import FAILURES, CaseResult, Status
from ..errors import PlanError, UnknownName
from ..names import listing, near_misses
from .document import read_text

_TEXTS = ("operator", "dtype", "phase", "reason", "link")
_KEYS = (*_TEXTS, "attributes", "shapes", "cases", "partial", "varies", "expires")
_EXCUSED = (FAILURES - {Status.XPASSED}) | {Status.UNSUPPORTED}


@dataclass(frozen=True, eq=False)
class Gap:
    """One declared gap; patterns are shell patterns, and empty fields match everything."""

    operator: str
    reason: str
    dtype: str = ""
    phase: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    partial: bool = False
    varies: bool = False
    link: str = ""
    expires: datetime.date | None = None
    line: int = 0

    def covers(self, result: CaseResult) -> bool:
        """Whether ``result`` is inside this gap; ``dtype`` may match the dtype of any input."""
        return (
            fnmatchcase(result.op, self.operator)
            and (not self.dtype or any(fnmatchcase(one, self.dtype) for one in result.dtypes))
            and (not self.phase or fnmatchcase(result.phase, self.phase))
            and all(result.attributes.get(name) == value for name, value in self.attributes.items())
            and all(
                name in result.shapes and fnmatchcase(_sizes(result.shapes[name]), text)
                for name, text in self.shapes.items()
            )
            and (not self.cases or result.case_id in self.cases)
        )

    def text(self) -> str:
        """Return the gap and its reason in one line."""
        attributes = (f"{name}={value}" for name, value in self.attributes.items())
        shapes = (f"{name}=[{text}]" for name, text in self.shapes.items())
        parts = (self.operator, self.dtype, self.phase, *attributes, *shapes, *self.cases)
        what = " ".join(part for part in parts if part)
        return f"{what}: {self.reason}" + (f" ({self.link})" if self.link else "")


@dataclass
class Expectations:
    """The gaps of one file, with counts of the cases of a run inside each."""

    gaps: tuple[Gap, ...] = ()
    file: Path | None = None
    today: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())
    _met: Counter[Gap] = field(default_factory=Counter)
    _passed: Counter[Gap] = field(default_factory=Counter)
    _excused: Counter[Gap] = field(default_factory=Counter)

    @classmethod
    def load(cls, file: Path, *, today: datetime.date | None = None) -> Expectations:
        """Read and check ``file``. Raises :class:`PlanError` with the line of the mistake."""
        text = read_text(file, "expectations file")
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"line (\d+)", str(error))
            line = int(place[1]) if place else None
            raise PlanError(f"this is not TOML: {error}", file=file, line=line) from None
        unknown = sorted(set(data) - {"gap"})
        if unknown or not isinstance(data.get("gap", []), list):
            key = unknown[0] if unknown else "gap"
            raise PlanError("unknown key", file=file, key=key, found=key, allowed="tables [[gap]]")
        lines = [number for number, one in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*gap", one)]
        lines += [0] * len(data.get("gap", []))
        gaps = (_gap(file, line, one) for line, one in zip(lines, data.get("gap", []), strict=False))
        made = cls(tuple(gaps), file)
        return made if today is None else replace(made, today=today)

    def judge(self, result: CaseResult) -> CaseResult:
        """Apply the gaps to ``result``: inside one, a failure becomes xfailed and a pass becomes xpassed.

        An expired gap excuses nothing. This is called after all retries.
        """
        gap = next((one for one in self.gaps if one.covers(result)), None)
        if gap is None or result.status in (Status.SKIPPED, Status.FALLBACK):
            return result
        self._met[gap] += 1
        if result.status is Status.PASSED:
            if gap.partial or gap.varies:
                return result
            self._passed[gap] += 1
            return replace(
                result, status=Status.XPASSED, reason=f"passes, but is declared a gap: {self._place(gap)}"
            )
        if result.status not in _EXCUSED:
            return result
        if self._expired(gap):
            expired = f"the gap that covers it expired on {gap.expires}: {self._place(gap)}"
            return replace(result, reason="; ".join(part for part in (result.reason, expired) if part))
        self._excused[gap] += 1
        told = f"{gap.text()} [{result.status}{': ' + result.reason if result.reason else ''}]"
        return replace(result, status=Status.XFAILED, reason=told)

    def problems(self, *, complete: bool, usual_values: bool = True) -> list[str]:
        """Return what is wrong with the file after a run; ``complete`` says that the run left nothing out.

        Problems are expired gaps and, in a complete run, gaps without a case and partial gaps in which
        nothing failed. The latter count only with ``usual_values``, those of the default seed, because
        other values may happen to pass.
        """
        found = []
        for gap in self.gaps:
            if self._expired(gap):
                found.append(
                    f"{self._place(gap)} expired on {gap.expires}: fix it, or renew it with a reason"
                )
            if complete and not self._met[gap]:
                found.append(f"{self._place(gap)} matches no case: remove it, or correct its patterns")
            unneeded = gap.partial and not (gap.varies or self._excused[gap] or self._expired(gap))
            if complete and usual_values and self._met[gap] and unneeded:
                found.append(f"{self._place(gap)} is partial, but all its cases pass: remove it")
        return found

    def summary(self) -> dict[str, int]:
        """Return counts for reports: gaps (declared, unmatched, expired), their cases, unexpected passes."""
        return {
            "declared": len(self.gaps),
            "cases": sum(self._met.values()),
            "unexpected_passes": sum(self._passed.values()),
            "unmatched": sum(not self._met[gap] for gap in self.gaps),
            "expired": sum(map(self._expired, self.gaps)),
        }

    def _expired(self, gap: Gap) -> bool:
        return gap.expires is not None and gap.expires < self.today

    def _place(self, gap: Gap) -> str:
        where = f"{self.file}:{gap.line}: " if self.file else ""
        return f"{where}gap {gap.text()}"


def _sizes(shape: Iterable[int]) -> str:
    return ",".join(map(str, shape))


def _gap(file: Path, line: int, entry: Any) -> Gap:
    def fail(key: str, problem: str, **details: Any) -> PlanError:
        return PlanError(problem, file=file, line=line or None, key=f"gap.{key}", **details)

    if not isinstance(entry, Mapping):
        raise fail("", "a gap is a table", found=entry, allowed="[[gap]]")
    for key, value in entry.items():
        if key not in _KEYS:
            near = near_misses(key, _KEYS)
            hint = f"did you mean {listing(near, last='or')}?" if near else None
            raise fail(key, "unknown key", found=key, allowed=listing(_KEYS), hint=hint)
        if key in _TEXTS and not (isinstance(value, str) and value.strip()):
            raise fail(key, "wrong value", found=value, allowed="text")
        if key in ("partial", "varies") and not isinstance(value, bool):
            raise fail(key, "wrong value", found=value, allowed="true or false")
        if key == "expires" and type(value) is not datetime.date:
            raise fail(key, "wrong value", found=value, allowed="a date such as 2027-01-31")
    for key in ("operator", "reason"):
        if key not in entry:
            raise fail(key, f"{key} is missing", found=list(entry), allowed=f"a key {key}")
    if not isinstance(entry.get("attributes", {}), Mapping):
        raise fail("attributes", "wrong value", found=entry["attributes"], allowed="a table of attributes")
    shapes = entry.get("shapes", {})
    if not (isinstance(shapes, Mapping) and all(isinstance(one, str) for one in shapes.values())):
        raise fail("shapes", "wrong value", found=shapes, allowed='a table such as { input0 = "0,*" }')
    cases = entry.get("cases", [])
    if not (isinstance(cases, list) and all(isinstance(one, str) for one in cases)):
        raise fail("cases", "wrong value", found=cases, allowed="a list of case ids")
    _check_names(entry, fail)
    attributes = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry.get("attributes", {}).items()
    }
    return Gap(**{**entry, "attributes": attributes, "cases": tuple(cases), "line": line})


def _check_names(entry: Mapping[str, Any], fail: Any) -> None:
    """Raise an error if a pattern matches no registered operator or none of its dtypes: it is a typo."""
    from ..operators.registry import operator_registry

    operators = [one for one in operator_registry if fnmatchcase(one.name, entry["operator"])]
    if not operators:
        unknown = UnknownName("operator", entry["operator"], operator_registry.names())
        raise fail("operator", unknown.message, found=entry["operator"])
    dtypes = sorted({name for one in operators for types in one.dtypes for name in types})
    if "dtype" in entry and not any(fnmatchcase(name, entry["dtype"]) for name in dtypes):
        raise fail("dtype", "no such dtype of the operator", found=entry["dtype"], allowed=listing(dtypes))
