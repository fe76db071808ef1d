"""COVERAGE.md: a one-screen summary of what a backend covers; :mod:`.details` has the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ..names import listing
from .criteria import State
from .evidence import Tally
from .markdown import escaped, table_row
from .operators import Level, OperatorCoverage
from .progress import Judged
from .snapshot import Snapshot

_NAMED = 30
"""How many operators a list on the page names; the details page has all of them."""
_PHASES = ("forward", "backward")
"""The phases that come first in the table."""


def coverage_page(snapshot: Snapshot, command: str, details: str | None = None) -> str:
    """Return the page as Markdown; ``command`` is the command that writes it, ``details`` the linked page."""
    sections = (
        _summary(snapshot, command, details),
        _stages(snapshot),
        _table(snapshot),
        _missing(snapshot, Level.PARTIAL, "Partially covered"),
        _missing(snapshot, Level.NONE, "Not covered yet"),
        _missing(snapshot, Level.UNSUPPORTED, "Left out on purpose"),
    )
    return "\n".join([*(line for section in sections for line in section), ""])


def _summary(snapshot: Snapshot, command: str, details: str | None) -> Iterator[str]:
    evidence, counts = snapshot.evidence, snapshot.counts
    meant = len(snapshot.operators) + len(evidence.unrecorded) - counts[Level.UNSUPPORTED]
    total = evidence.everything()
    yield f"# Operator coverage of {escaped(evidence.backend)}\n"
    yield (
        f"**{escaped(snapshot.progress.name)}. {counts[Level.FULL]} of {meant} operators are fully covered"
        f" ({_percent(counts[Level.FULL], meant)}), {counts[Level.PARTIAL]} partially.**"
        f" {total.passed:,} of {total.applicable:,} recorded cases pass.\n"
    )
    days = dict.fromkeys(run.started[:10] for run in (evidence.runs[0], evidence.runs[-1]))
    yield (
        f"Recorded {' to '.join(days)} in {len(evidence.runs)} runs with {escaped(evidence.versions)}."
        f" Written by `{command}`, not by hand."
        + (
            f" [Details]({details}): runs and commands, stage items, every operator and overload."
            if details
            else ""
        )
        + "\n"
    )
    for warning in evidence.warnings:
        yield f"> Warning: {escaped(warning)}\n"


def _stages(snapshot: Snapshot) -> Iterator[str]:
    progress = snapshot.progress
    yield "## Stages\n"
    yield "Stages are computed from recorded results.\n"
    yield "| stage | state | missing |"
    yield "|---|---|---|"
    for one in progress.stages:
        yield _judged(one)
    yield ""
    if progress.checklists:
        yield "Checklists also ask for what no result can show. Such an item is met by `optest attest`.\n"
        yield "| checklist | state | missing |"
        yield "|---|---|---|"
        for one in progress.checklists:
            yield _judged(one)
        yield ""


def _judged(one: Judged) -> str:
    applicable = [item for item in one.items if item.state is not State.NOT_APPLICABLE]
    state = "complete" if one.complete else f"{len(applicable) - len(one.missing)} of {len(applicable)} items"
    return table_row(f"{one.title}: {one.summary}", state, "; ".join(item.text for item in one.missing))


def _table(snapshot: Snapshot) -> Iterator[str]:
    """Yield a table by dtype and phase of how many operators with applicable cases pass all of them."""
    cells: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one in snapshot.operators:
        for (phase, dtype), tally in one.evidence.tallies.items():
            if tally.applicable:
                cells[dtype][phase].append(tally.clean)
    found = {phase for phases in cells.values() for phase in phases}
    phases = [*(p for p in _PHASES if p in found), *sorted(found - set(_PHASES))]
    yield "## By dtype and phase\n"
    yield "Operators of which every case passes, of all operators that have one recorded.\n"
    yield table_row("dtype", *phases)
    yield "|---" * (len(phases) + 1) + "|"
    for dtype in sorted(cells, key=lambda name: -len(cells[name].get("forward", ()))):
        yield table_row(dtype, *(_share(cells[dtype].get(phase, ())) for phase in phases))
    yield ""


def _share(clean: list[bool] | tuple[()]) -> str:
    return f"{sum(clean)}/{len(clean)}" if clean else ""


def _missing(snapshot: Snapshot, level: Level, heading: str) -> Iterator[str]:
    chosen = [one for one in snapshot.operators if one.level is level]
    if not chosen:
        return
    by_reason: Mapping[str, list[str]] = defaultdict(list)
    for one in chosen:
        by_reason[_reason(one)].append(one.name)
    yield f"## {heading} ({len(chosen)})\n"
    yield "| operators | why |"
    yield "|---|---|"
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        yield table_row(listing(names, limit=_NAMED), reason)
    yield ""


def _reason(one: OperatorCoverage) -> str:
    if one.level is Level.UNSUPPORTED:
        return one.reason
    forward: Tally = one.evidence.tally("forward")
    first = forward.why if one.level is Level.NONE else ""
    if first or not one.missing:
        return first
    rest = len(one.missing) - 1
    return one.missing[0] + (f"; {rest} more in the details" if rest else "")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"
