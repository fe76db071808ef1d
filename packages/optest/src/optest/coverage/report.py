"""COVERAGE.md. Names and reasons come from results, so whatever Markdown would read is escaped."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from .criteria import State
from .operators import Level, OperatorCoverage
from .progress import Judged
from .snapshot import Snapshot

_MARKS = {
    State.MET: "[x]",
    State.ATTESTED: "[x]",
    State.MISSING: "[ ]",
    State.EXPIRED: "[ ]",
    State.NOT_APPLICABLE: "[-]",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")
_HEADINGS = {
    Level.FULL: "Fully supported",
    Level.PARTIAL: "Partially supported, with what is missing",
    Level.NONE: "Not yet supported",
    Level.UNSUPPORTED: "Intentionally unsupported, with the reason",
}
_RUNS = 12
"""Runs that the page names one by one."""


def coverage_page(snapshot: Snapshot, command: str) -> str:
    """The page as Markdown; ``command`` is the one that wrote it."""
    return "\n".join([*_head(snapshot, command), *_stages(snapshot), *_operators(snapshot), ""])


def escaped(text: str) -> str:
    """``text`` on one line, as Markdown that means nothing else."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _head(snapshot: Snapshot, command: str) -> Iterator[str]:
    evidence, counts = snapshot.evidence, snapshot.counts
    yield f"# Operator coverage of {escaped(evidence.backend)}\n"
    yield f"Written by `{command}` from recorded results; not by hand. Runs:\n"
    for run in evidence.runs[-_RUNS:]:
        versions = ", ".join(
            f"{name} {run.environment[name]}" for name in ("torch", "python") if name in run.environment
        )
        facts = f"{run.started[:10]}, optest {run.version}, {versions}"
        yield f"- {escaped(run.run_id)} ({escaped(facts)})"
    if len(evidence.runs) > _RUNS:
        yield f"- and {len(evidence.runs) - _RUNS} before them"
    yield ""
    for warning in evidence.warnings:
        yield f"> Warning: {escaped(warning)}\n"
    yield "| fully | partially | not yet | intentionally unsupported | in all |"
    yield "|---|---|---|---|---|"
    yield "| " + " | ".join(str(counts[one]) for one in Level) + f" | {len(snapshot.operators)} |\n"


def _stages(snapshot: Snapshot) -> Iterator[str]:
    progress = snapshot.progress
    target = progress.stages[progress.target - 1]
    yield f"## Stage: {escaped(progress.name)}\n"
    state = "reached" if progress.reached >= progress.target else "not reached yet"
    yield f"Target: {escaped(target.title)}, {state}.\n"
    for one in progress.stages:
        yield from _items(one)
    yield "## Readiness\n"
    for one in progress.checklists:
        yield from _items(one)
    yield from _planned(snapshot)


def _items(judged: Judged) -> Iterator[str]:
    state = "complete" if judged.complete else f"{len(judged.missing)} of {len(judged.items)} items missing"
    yield f"### {escaped(judged.title)}: {escaped(judged.summary)} ({state})\n"
    for item in judged.items:
        kind = f" *{item.state.value}*" if item.state is not State.MET else ""
        yield f"- {_MARKS[item.state]} {escaped(item.text)}{kind}"
        yield from (f"  - {escaped(text)}" for text in item.detail)
    yield ""


def _planned(snapshot: Snapshot) -> Iterator[str]:
    planned = snapshot.plan.target.planned
    if not planned:
        return
    levels = {one.name: one.level for one in snapshot.operators}
    yield "## Planned\n"
    for category, names in sorted(planned.items()):
        states = (f"{escaped(one)} ({levels[one].value if one in levels else 'no result'})" for one in names)
        yield f"- {escaped(category)}: {', '.join(states)}"
    yield ""


def _operators(snapshot: Snapshot) -> Iterator[str]:
    writers: dict[Level, Callable[[list[OperatorCoverage]], Iterable[str]]] = {
        Level.FULL: _names,
        Level.PARTIAL: _with(lambda one: "; ".join(one.missing)),
        Level.NONE: _with(lambda one: one.evidence.tally("forward").why or "; ".join(one.missing)),
        Level.UNSUPPORTED: _with(lambda one: one.reason),
    }
    for level, write in writers.items():
        chosen = [one for one in snapshot.operators if one.level is level]
        yield f"## {_HEADINGS[level]} ({len(chosen)})\n"
        groups = defaultdict(list)
        for one in chosen:
            groups[one.category].append(one)
        for category, members in sorted(groups.items()):
            yield f"### {escaped(category)} ({len(members)})\n"
            yield from write(members)
            yield ""


def _names(members: list[OperatorCoverage]) -> Iterator[str]:
    yield ", ".join(escaped(one.name) for one in members)


def _with(text: Callable[[OperatorCoverage], str]) -> Callable[[list[OperatorCoverage]], Iterable[str]]:
    def write(members: list[OperatorCoverage]) -> Iterator[str]:
        return (f"- **{escaped(one.name)}**: {escaped(text(one))}" for one in members)

    return write
