"""Decisions about gaps, in a TOML file that is written by hand and only read here.

format = 1

[[gap]]
api = "torch.cuda.nccl"          # a name, or a pattern with *
kind = "target limitation"       # optional: any kind
status = "accepted"              # accepted (default), planned or fixed
note = "why it is so"
action = "what is to be done"    # optional
severity = "low"                 # optional: high, medium or low
test = "path/test.py::name"      # required if the status is fixed
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from optest.files import read_whole

from ..errors import GapsError
from .answers import GapKind

FORMAT = 1
_STATUSES = ("accepted", "planned", "fixed")


class Severity(StrEnum):
    """How much a gap hurts users who run into it."""

    HIGH = "high"
    """The result is wrong, and nothing says so."""
    MEDIUM = "medium"
    """The call is refused with an exception."""
    LOW = "low"
    """The gap is explained, or costs only speed."""


@dataclass(frozen=True)
class Decision:
    """One ``[[gap]]`` entry of the file."""

    api: str
    note: str
    kind: GapKind | None = None
    status: str = "accepted"
    action: str = ""
    severity: Severity | None = None
    test: str = ""

    def covers(self, api: str, kind: GapKind) -> bool:
        return self.kind in (None, kind) and fnmatchcase(api, self.api)

    def __str__(self) -> str:
        return f"{self.api} ({self.kind})" if self.kind else self.api


@dataclass(frozen=True)
class Decisions:
    """The file's entries; an exact name goes before a pattern, and a longer pattern before a shorter one."""

    entries: tuple[Decision, ...] = ()
    source: str = ""
    _ranked: tuple[Decision, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ranked = sorted(self.entries, key=lambda one: ("*" in one.api, -len(one.api), one.kind is None))
        object.__setattr__(self, "_ranked", tuple(ranked))

    def of(self, api: str, kind: GapKind) -> Decision | None:
        return next((one for one in self._ranked if one.covers(api, kind)), None)


def load_decisions(path: Path | None) -> Decisions:
    """Read the decisions in a file. Raises :class:`GapsError` if it cannot be read or an entry is invalid."""
    if path is None:
        return Decisions()
    try:
        return parse_decisions(read_whole(path).decode("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise GapsError(f"cannot read the decisions {path}: {error}") from error


def shipped_decisions(provider: str) -> Decisions:
    """Read this package's decisions for a provider; there are none if it has no file."""
    name = f"{provider.partition(':')[0]}.toml"
    found = files(__package__).joinpath("data", name)
    return parse_decisions(found.read_text("utf-8"), name) if found.is_file() else Decisions()


def parse_decisions(text: str, source: str) -> Decisions:
    """Return the entries in the text of a file; ``source`` is its name in errors."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise GapsError(f"{source} is not TOML: {error}", hint="correct the line") from error
    if table.get("format") != FORMAT:
        hint = f"begin it with format = {FORMAT}"
        raise GapsError(f"{source} has format {table.get('format')}, not {FORMAT}", hint=hint)
    unknown = sorted(table.keys() - {"format", "gap"})
    if unknown:
        raise GapsError(f"{source} has an unknown table {unknown[0]}", hint="write entries as [[gap]]")
    entries = tuple(
        _decision(entry, f"{source}, entry {n}") for n, entry in enumerate(table.get("gap", ()), 1)
    )
    _refuse_twice(entries, source)
    return Decisions(entries, source)


def _decision(entry: dict[str, Any], place: str) -> Decision:
    known = {"action", "api", "kind", "note", "severity", "status", "test"}
    for name, value in entry.items():
        if name not in known:
            raise GapsError(f"{place}: unknown key {name}", hint=f"the keys are {', '.join(sorted(known))}")
        if not isinstance(value, str):
            raise GapsError(f"{place}: {name} is not text")
    for name in ("api", "note"):
        if not entry.get(name, "").strip():
            raise GapsError(f"{place} has no {name}", hint=f'add {name} = "…"')
    status = entry.get("status", "accepted")
    if status not in _STATUSES:
        raise GapsError(f"{place}: status {status!r}", hint=f"it is one of {', '.join(_STATUSES)}")
    if status == "fixed" and not entry.get("test"):
        raise GapsError(f"{place}: {entry['api']} is fixed without a test", hint='add test = "path::name"')
    try:
        kind = GapKind(entry["kind"]) if "kind" in entry else None
        severity = Severity(entry["severity"]) if "severity" in entry else None
    except ValueError as error:
        kinds = ", ".join(map(str, (*GapKind, *Severity)))
        raise GapsError(f"{place}: {error}", hint=f"the words are {kinds}") from error
    return Decision(
        entry["api"], entry["note"], kind, status, entry.get("action", ""), severity, entry.get("test", "")
    )


def _refuse_twice(entries: Iterable[Decision], source: str) -> None:
    seen: set[tuple[str, GapKind | None]] = set()
    for one in entries:
        if (one.api, one.kind) in seen:
            raise GapsError(f"{source} decides {one} twice", hint="keep one of the two")
        seen.add((one.api, one.kind))
