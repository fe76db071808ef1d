"""The details page behind COVERAGE.md: runs, every item of every stage, every operator and overload.

Names and reasons come from results, so all Markdown syntax in them is escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..core.summary import cost_split
from ..names import listing
from .criteria import State
from .evidence import Evidence, Tally
from .markdown import escaped, table_row
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
_HEADINGS = {
    Level.FULL: "Fully supported",
    Level.PARTIAL: "Partially supported, with what is missing",
    Level.NONE: "Not yet supported",
    Level.UNSUPPORTED: "Intentionally unsupported, with the reason",
}
_RUNS = 100
"""How many commands of runs the page lists one by one."""
_NAMED = 4
"""How many operators the row of an overload names."""


def details_page(snapshot: Snapshot, command: str) -> str:
    """Return the page as Markdown; ``command`` is the command that writes it."""
    sections = (_head(snapshot, command), _stages(snapshot), _operators(snapshot), _results(snapshot))
    return "\n".join([*(line for section in sections for line in section), ""])


def _head(snapshot: Snapshot, command: str) -> Iterator[str]:
    evidence, counts = snapshot.evidence, snapshot.counts
    yield f"# Operator coverage of {escaped(evidence.backend)}: details\n"
    yield f"Written by `{command}` from recorded results; not by hand.\n"
    yield from _recorded(evidence)
    for warning in evidence.warnings:
        yield f"> Warning: {escaped(warning)}\n"
    yield "| fully | partially | not yet | intentionally unsupported | in all |"
    yield "|---|---|---|---|---|"
    yield "| " + " | ".join(str(counts[one]) for one in Level) + f" | {len(snapshot.operators)} |\n"


def _recorded(evidence: Evidence) -> Iterator[str]:
    """Yield the section about what was recorded: runs, versions, cases, cost."""
    first, last = evidence.runs[0], evidence.runs[-1]
    days = " to ".join(dict.fromkeys((first.started[:10], last.started[:10])))
    yield f"- Recorded: {len(evidence.runs)} runs, {escaped(first.run_id)} to {escaped(last.run_id)} ({days})"
    yield f"- Of: {escaped(evidence.versions)}"
    total = evidence.everything()
    among = f", of {total.samples} samples that the suite has of these" if total.samples else ""
    lacking = f"; a full run has {total.missing} more" if total.missing else ""
    yield f"- Cases: {total.passed} of {total.applicable} pass; {total.total} are recorded{among}{lacking}"
    if split := cost_split(evidence.seconds):
        yield f"- Cost, over all processes and runs: {escaped(split)}"
    yield from ("", "Commands, each with its runs:\n")
    commands = defaultdict(list)
    for run in evidence.runs:
        commands[run.command_line.removesuffix(" --resume")].append(run.run_id)
    for command, runs in list(commands.items())[-_RUNS:]:
        yield f"- {escaped(command)}: {escaped(', '.join(runs))}"
    if len(commands) > _RUNS:
        yield f"- and {len(commands) - _RUNS} before them"
    yield ""


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


def _results(snapshot: Snapshot) -> Iterator[str]:
    """Yield all recorded results, by operator and by the overloads that eager PyTorch calls."""
    yield "## Results by operator\n"
    yield "Passing cases of those that apply. Errors are the largest of all cases, in ULP, beside eager's.\n"
    yield "| operator | ran as | results | error | eager's |"
    yield "|---|---|---|---|---|"
    for one in snapshot.operators:
        total = one.evidence.everything()
        yield table_row(one.name, _ran_as(total.classes), _counted(one.evidence.tallies), *_errors(total))
    if not snapshot.evidence.overloads:
        return
    yield "\n## Results by overload\n"
    yield "An overload's cases are those for which eager PyTorch calls it, whatever else they call.\n"
    yield "| overload | operators | ran as | results | error | eager's |"
    yield "|---|---|---|---|---|---|"
    for each in snapshot.evidence.overloads.values():
        total = Tally()
        for tally in each.tallies.values():
            total += tally
        named = listing(sorted(each.operators), limit=_NAMED)
        yield table_row(each.name, named, _ran_as(total.classes), _counted(each.tallies), *_errors(total))


def _ran_as(classes: Mapping[str, int]) -> str:
    return ", ".join(name for name, count in sorted(classes.items(), key=lambda one: -one[1]) if count)


def _counted(tallies: Mapping[tuple[str, str], Tally]) -> str:
    """Return counts like ``forward 24/24 (float32 float64), 3/4 int8; backward …``.

    Dtypes in which everything passes are counted together.
    """
    by_phase: dict[str, dict[str, Tally]] = defaultdict(dict)
    for (phase, dtype), tally in sorted(tallies.items()):
        if tally.applicable:
            by_phase[phase][dtype] = tally
    return "; ".join(f"{phase} {_dtypes(found)}" for phase, found in by_phase.items())


def _dtypes(found: Mapping[str, Tally]) -> str:
    clean = [dtype for dtype, tally in found.items() if tally.clean]
    passed = sum(found[dtype].passed for dtype in clean)
    parts = [f"{passed}/{passed} ({' '.join(clean)})"] if clean else []
    wrong = (item for item in found.items() if not item[1].clean)
    return ", ".join([*parts, *(f"{tally.passed}/{tally.applicable} {dtype}" for dtype, tally in wrong)])


def _errors(tally: Tally) -> tuple[str, str]:
    ulp, control = ("" if one is None else f"{one:.3g}" for one in (tally.ulp, tally.control_ulp))
    return ulp, control
