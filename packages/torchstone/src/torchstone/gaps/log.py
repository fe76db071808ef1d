"""The gap log: one entry per gap, with its description, its urgency and the decision about it.

:mod:`.render` writes the log to files. The id of an entry depends only on the API and the kind of gap, so it
stays the same in all versions.
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
    """One gap.

    ``status``: open (not explained), explained (by the provider itself), accepted or planned (by a decision),
    or fixed (gone, or marked so by a decision). ``priority``: 1 is the most urgent.
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

    ``summary`` counts APIs by namespace and status. ``tried`` counts those that were called on both sides, by
    namespace; ``not_called`` names the others, of which only names and signatures were compared.
    ``branches`` counts conditions on devices in PyTorch's sources; ``problems`` lists what must fail CI.
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
        """The number of names that were called on both sides."""
        return sum(self.tried.values())

    @property
    def compared_names(self) -> int:
        return self.called + len(self.not_called)

    def calls(self) -> str:
        """Return a sentence that says how many names were called."""
        rest = "of the rest, only names and signatures were compared"
        return f"{self.called} of {self.compared_names} names were called; {rest}"

    def to_dict(self) -> dict[str, Any]:
        """Return the log as plain data for JSON."""
        return {"format": FORMAT, "format_version": VERSION, **asdict(self)}

    def find(self, gap_id: str) -> Entry:
        """Return the entry with this id. Raises :class:`GapsError` if there is none."""
        for one in self.entries:
            if one.id == gap_id:
                return one
        raise GapsError(f"there is no gap {gap_id}", hint="`torchstone gaps log` lists them with their ids")

    def plan(self) -> list[Entry]:
        """Return the entries that are open or planned, the most urgent first."""
        left = [one for one in self.entries if one.status in ("open", "planned")]
        return sorted(left, key=lambda one: (one.priority, -one.uses, one.api, one.kind))


def identify(api: str, kind: GapKind) -> str:
    """Return the id of a gap: ``gap-`` and ten hexadecimal digits of a hash of name and kind."""
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
    """Return the log of a comparison.

    ``previous`` (:func:`load_entries`) tells when gaps were first seen and which are gone. Gaps that are gone
    stay in the log as fixed if they were open, planned or fixed before.

    ``read``: the namespaces that were compared, or None for all. Decisions and earlier entries about names in
    other namespaces are ignored.
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
    """Merge the gaps of the same API and kind into one, which is explained only if all of them are."""
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
    """Whether a gap was a defect; if an explained or accepted one is gone, nothing was fixed."""
    return old.status in ("open", "planned", "fixed")


def _fixed(old: Entry, decisions: Decisions, now: str) -> Entry:
    """Mark an entry of the earlier log as fixed, with the test that keeps the gap closed."""
    decision = decisions.of(old.api, old.kind)
    note, test = (decision.note, decision.test) if decision and decision.status == "fixed" else ("", "")
    return replace(old, status="fixed", fixed_in=old.fixed_in or now, note=note, test=test, action="")


def _severity(gap: Gap, *, settled: bool) -> Severity:
    if settled or gap.kind is GapKind.REFINEMENT:
        return Severity.LOW
    return Severity.MEDIUM if gap.loud else Severity.HIGH


def _priority(severity: Severity, uses: int) -> int:
    """Return the priority, from 1 (silently wrong, and used) to 4 (low severity, and not used)."""
    rank = {Severity.HIGH: 2, Severity.MEDIUM: 3, Severity.LOW: 4}[severity]
    return rank - 1 if uses else rank


def _summary(comparison: Comparison) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for finding in comparison.findings.values():
        found[finding.api.namespace][str(finding.status)] += 1
    return {name: dict(sorted(counts.items())) for name, counts in sorted(found.items())}


def _was_read(api: str, read: Container[str] | None) -> bool:
    """Whether ``api`` was among the names compared; a pattern with ``*`` was only if all namespaces were."""
    return read is None or ("*" not in api and api.rpartition(".")[0] in read)


def _problems(
    comparison: Comparison, decisions: Decisions, entries: Sequence[Entry], read: Container[str] | None
) -> Iterable[str]:
    """Yield the problems that must fail a build.

    These are gaps without an explanation, fixed gaps that are back or have no test, and decisions about gaps
    that do not exist.
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
    """Return the entries of a log in JSON, by id. Raises :class:`GapsError` if the file is not a gap log."""
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
