"""The groups of a selection, planned from the databases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from ...errors import UnknownName, UsageError
from .databases import entries_of
from .groups import PHASES, Group, Selection


def plan(selection: Selection) -> list[Group]:
    """Return the groups of ``selection``, in the order of the database, dtypes and phases.

    Raises :class:`UnknownName` for an unknown suite, entry, dtype or phase, and
    :class:`UsageError` if nothing is left (a shard may be empty).
    """
    for phase in selection.phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    entries = entries_of(selection.suite)
    for pattern in selection.entries:
        if not any(fnmatchcase(name, pattern) for name in entries):
            raise UnknownName(f"entry of the suite {selection.suite}", pattern, entries)
    dtypes = {dtype for entry in entries.values() for dtype in entry.dtypes}
    for dtype in selection.dtypes:
        if dtype not in dtypes:
            raise UnknownName("dtype", dtype, sorted(dtypes))
    chosen = [
        Group(selection.suite, name, dtype, phase, entry.family, selection.seed)
        for name, entry in entries.items()
        if not selection.entries or any(fnmatchcase(name, one) for one in selection.entries)
        for dtype in entry.dtypes
        if not selection.dtypes or dtype in selection.dtypes
        for phase in selection.phases
        if entry.has(phase, dtype)
    ]
    if not chosen:
        raise UsageError(
            f"no group of the suite {selection.suite} is left: no entry named has these dtypes and phases"
        )
    if selection.stratify is not None:
        chosen = stratified(chosen, selection.stratify)
    index, count = selection.shard
    return [one for one in chosen if one.number % count == index - 1]


def stratified(groups: Sequence[Group], count: int) -> list[Group]:
    """Choose ``count`` groups, evenly from all families, phases and kinds of dtypes; always the same ones."""
    strata: dict[tuple[str, str, str], list[Group]] = defaultdict(list)
    for group in sorted(groups, key=lambda one: one.number):
        strata[group.family, group.phase, group.dtype.rstrip("0123456789")].append(group)
    kept = {group for group, _ in zip(_in_turn(strata.values()), range(count), strict=False)}
    return [group for group in groups if group in kept]


def _in_turn(strata: Iterable[list[Group]]) -> Iterator[Group]:
    """Yield the first group of every stratum, then the second of every stratum, and so on."""
    rows = list(strata)
    for place in range(max(map(len, rows), default=0)):
        yield from (row[place] for row in rows if place < len(row))
