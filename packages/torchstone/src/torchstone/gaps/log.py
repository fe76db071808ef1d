"""The gap log: one entry for each gap, with what people decided, how urgent it is, and what is wrong with it.

Written down in :mod:`.render`. An entry's id depends on the API and the kind alone, so that it stays the same
over versions.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from optest.files import read_whole

from ..errors import GapsError
from .answers import Gap, GapKind
from .compare import Comparison
from .decisions import Decisions, Severity
from .mapping import ModuleTable
from .usage import Usage

FORMAT = "torchstone-gap-log"
VERSION = 1
_ACTIONS = {
    GapKind.SIGNATURE: "give it the original's parameters",
    GapKind.UNPATCHED: "provide it, or decide that it stays as it is and why",
    GapKind.BEHAVIOUR: "do as the original does, or document the difference",
    GapKind.TARGET: "provide what is missing, or document what the target cannot do",
    GapKind.REFINEMENT: "read the conditions, and decide whether they matter",
}


@dataclass(frozen=True)
class Entry:
    """One gap. ``status``: open (nobody has explained it), explained (by the provider itself), accepted or
    planned (decided), fixed (gone, or decided so). ``priority``: 1 is first.
    """

    id: str
    api: str
    namespace: str
    kind: GapKind
    equivalent: str
    description: str
    severity: Severity
    priority: int
    uses: int
    action: str
    status: str
    note: str
    first_seen: str
    fixed_in: str = ""
    test: str = ""


@dataclass(frozen=True)
class Log:
    """Every gap of one provider.

    ``summary`` counts APIs by namespace and status, ``tried`` those that were called on both sides, and
    ``not_called`` names the others: of these, signatures are all that was compared.
    ``branches`` counts conditions on devices in PyTorch's sources; ``problems`` is for CI.
    """

    provider: str
    compared: str
    versions: Mapping[str, str]
    summary: Mapping[str, Mapping[str, int]]
    tried: Mapping[str, int]
    branches: Mapping[str, Mapping[str, int]]
    entries: tuple[Entry, ...]
    problems: tuple[str, ...]
    not_called: tuple[str, ...] = ()

    @property
    def called(self) -> int:
        """How many names were called on both sides."""
        return sum(self.tried.values())

    @property
    def compared_names(self) -> int:
        return self.called + len(self.not_called)

    def calls(self) -> str:
        """How far behavior was compared, in words."""
        rest = "of the rest, only names and signatures were compared"
        return f"{self.called} of {self.compared_names} names were called; {rest}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"format": FORMAT, "format_version": VERSION, **asdict(self)}

    def find(self, gap_id: str) -> Entry:
        """Raises :class:`GapsError` where there is no such gap."""
        for one in self.entries:
            if one.id == gap_id:
                return one
        raise GapsError(f"there is no gap {gap_id}", hint="`torchstone gaps log` lists them with their ids")

    def plan(self) -> list[Entry]:
        """What is left to do, most urgent first."""
        left = [one for one in self.entries if one.status in ("open", "planned")]
        return sorted(left, key=lambda one: (one.priority, -one.uses, one.api, one.kind))


def identify(api: str, kind: GapKind) -> str:
    """``gap-`` and ten hexadecimal digits of a hash of name and kind."""
    return "gap-" + hashlib.sha256(f"{kind}\0{api}".encode()).hexdigest()[:10]


def make_log(
    comparison: Comparison,
    decisions: Decisions,
    versions: Mapping[str, str],
    *,
    usage: Usage | None = None,
    mapping: ModuleTable | None = None,
    branches: Mapping[str, Mapping[str, int]] | None = None,
    previous: Mapping[str, Entry] | None = None,
    read: Container[str] | None = None,
) -> Log:
    """The log of a comparison. ``previous`` (:func:`load_entries`) says when gaps were first seen, and which
    are gone: those that were to be worked on stay in the log as fixed.

    ``read``: the namespaces that were compared, where these are not all: what was decided or seen earlier
    about other names says nothing here.
    """
    now = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "commit")
    known = previous or {}
    entries = [
        _entry(gap, comparison, decisions, usage or Usage(), mapping, now, known)
        for gap in _one_for_each_kind(comparison.gaps())
    ]
    present = {one.id for one in entries}
    entries += [
        _fixed(old, decisions, now)
        for old in known.values()
        if old.id not in present and _was_open(old) and _was_read(old.api, read)
    ]
    entries.sort(key=lambda one: (one.kind, one.api))
    return Log(
        comparison.provider,
        comparison.compared,
        dict(versions),
        _summary(comparison),
        dict(Counter(one.api.namespace for one in comparison.findings.values() if one.trial)),
        branches or {},
        tuple(entries),
        tuple(_problems(comparison, decisions, entries, read)),
        tuple(name for name, one in comparison.findings.items() if not one.trial),
    )


def _one_for_each_kind(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps of one API and kind become one entry; it is explained if each of them is."""
    groups: dict[tuple[str, GapKind], list[Gap]] = defaultdict(list)
    for gap in gaps:
        groups[gap.api.name, gap.kind].append(gap)
    merged = []
    for group in groups.values():
        explained = all(gap.explanation for gap in group)
        merged.append(
            replace(
                group[0],
                description="; ".join(dict.fromkeys(gap.description for gap in group)),
                loud=all(gap.loud for gap in group),
                explanation="; ".join(dict.fromkeys(gap.explanation for gap in group)) if explained else "",
            )
        )
    return merged


def _entry(
    gap: Gap,
    comparison: Comparison,
    decisions: Decisions,
    usage: Usage,
    mapping: ModuleTable | None,
    now: str,
    known: Mapping[str, Entry],
) -> Entry:
    name, gap_id = gap.api.name, identify(gap.api.name, gap.kind)
    decision = decisions.of(name, gap.kind)
    status = decision.status if decision else "explained" if gap.explanation else "open"
    settled = status in ("accepted", "explained")
    severity = (decision and decision.severity) or _severity(gap, settled=settled)
    uses = usage.of(name)
    ours = mapping.ours(comparison.provider, name) if mapping else ""
    return Entry(
        id=gap_id,
        api=name,
        namespace=gap.api.namespace,
        kind=gap.kind,
        equivalent=ours or comparison.findings[name].answer.equivalent,
        description=gap.description,
        severity=severity,
        priority=_priority(severity, uses),
        uses=uses,
        action=(decision.action if decision else "") or ("" if settled else _ACTIONS[gap.kind]),
        status=status,
        note=decision.note if decision else gap.explanation,
        first_seen=known[gap_id].first_seen if gap_id in known else now,
        test=decision.test if decision else "",
    )


def _was_open(old: Entry) -> bool:
    """What was explained or accepted was not a defect: when it is gone, nothing was fixed."""
    return old.status in ("open", "planned", "fixed")


def _fixed(old: Entry, decisions: Decisions, now: str) -> Entry:
    """An entry of the earlier log whose gap is gone, with the test that keeps it so."""
    decision = decisions.of(old.api, old.kind)
    note, test = (decision.note, decision.test) if decision and decision.status == "fixed" else ("", "")
    return replace(old, status="fixed", fixed_in=old.fixed_in or now, note=note, test=test, action="")


def _severity(gap: Gap, *, settled: bool) -> Severity:
    if settled or gap.kind is GapKind.REFINEMENT:
        return Severity.LOW
    return Severity.MEDIUM if gap.loud else Severity.HIGH


def _priority(severity: Severity, uses: int) -> int:
    """1 (silently wrong, and used) to 4 (neither)."""
    rank = {Severity.HIGH: 2, Severity.MEDIUM: 3, Severity.LOW: 4}[severity]
    return rank - 1 if uses else rank


def _summary(comparison: Comparison) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for finding in comparison.findings.values():
        found[finding.api.namespace][str(finding.status)] += 1
    return {name: dict(sorted(counts.items())) for name, counts in sorted(found.items())}


def _was_read(api: str, read: Container[str] | None) -> bool:
    """Whether the name, or every name that a pattern with ``*`` can mean, was among those compared."""
    return read is None or ("*" not in api and api.rpartition(".")[0] in read)


def _problems(
    comparison: Comparison, decisions: Decisions, entries: Sequence[Entry], read: Container[str] | None
) -> Iterable[str]:
    """What must fail a build: gaps that nobody has explained, fixed ones that are back or have no test, and
    decisions about gaps that are not there.
    """
    present = [one for one in entries if not one.fixed_in]
    for one in present:
        if one.status == "open":
            yield f"{one.id} {one.api} ({one.kind}) is not explained: {one.description}"
        elif one.status == "fixed":
            yield f"{one.id} {one.api} ({one.kind}) is back, although it was fixed: {one.description}"
    for one in entries:
        if one.fixed_in and not one.test and one.kind is not GapKind.REFINEMENT:
            yield f"{one.id} {one.api} ({one.kind}) is gone: decide that it is fixed, and name its test"
    for decision in decisions.entries:
        if decision.status == "fixed" or not _was_read(decision.api, read):
            continue
        if not any(decisions.of(one.api, one.kind) is decision for one in present):
            yield f"{decisions.source} decides {decision}, which is not a gap: remove it, or mark it fixed"


def load_entries(path: Path) -> dict[str, Entry]:
    """The entries of a log in JSON, by id. Raises :class:`GapsError` where the file is none."""
    try:
        found = json.loads(read_whole(path))
        if found["format"] != FORMAT or found["format_version"] != VERSION:
            raise GapsError(
                f"{path} is not a gap log of format {VERSION}", hint="write it with `torchstone gaps log`"
            )
        entries = [Entry(**one) for one in found["entries"]]
    except OSError as error:
        raise GapsError(f"cannot read the gap log {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GapsError(
            f"{path} is not a gap log: {error}", hint="write it with `torchstone gaps log`"
        ) from error
    return {one.id: replace(one, kind=GapKind(one.kind), severity=Severity(one.severity)) for one in entries}
