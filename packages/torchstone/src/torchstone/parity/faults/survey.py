"""Find which entries of the suite exercise which lowerings, and choose lowerings for a mutation test."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from optest.errors import UnknownName
from optest.torch.opinfo.classes import class_of
from optest.torch.opinfo.databases import Entry, entries_of
from optest.torch.opinfo.execution import overloads_of
from optest.torch.opinfo.groups import Group
from optest.torch.opinfo.phases import cases_of

from ...lowering import Lowering, load
from .rules import packet_of

SUITE = "opinfo"
_LOOKED_AT = 2
"""The number of samples of an entry to run, to find out which operators it calls."""
_DTYPES = ("float32", "int64", "complex64", "bool")
"""The dtypes in which an entry runs: the first supported one, then the others if that shows nothing."""
_JUDGED_BY_VALUES = ("bounded", "determined")
"""Classes of entries for which the suite compares values, although not the operator's own results."""


@dataclass(frozen=True)
class Pair:
    """A lowering and an entry that calls it."""

    lowering: Lowering
    group: Group
    own: bool
    """Whether the entry tests this operator itself, rather than only using it."""

    def groups(self, phases: Sequence[str]) -> list[Group]:
        """Return the entry's groups for these phases, in each kind of dtype.

        The suite misses a fault that shows in none of them.
        """
        entry = entries_of(SUITE)[self.group.entry]
        return [
            replace(self.group, dtype=dtype, phase=phase)
            for phase in phases
            for dtype in _DTYPES
            if dtype in entry.dtypes and entry.has(phase, dtype)
        ]

    @property
    def function(self) -> Callable[..., Any]:
        """The entry's function, as PyTorch's users call it."""
        function: Callable[..., Any] = entries_of(SUITE)[self.group.entry].info.op
        return function


def pairs_of(
    patterns: Sequence[str], seed: int, progress: Callable[[str], None] = lambda text: None
) -> Iterator[Pair]:
    """Yield lowerings of all families in turn, each with the entry that calls it and the fewest others.

    ``seed`` determines the order within a family. ``patterns`` select entries; without any, all are
    used. An entry's exported program may call other overloads than eager PyTorch does, which shows
    only when the program is run.
    """
    by_family: dict[str, list[Pair]] = defaultdict(list)
    for lowering, group in _closest(patterns, seed, progress):
        by_family[lowering.family].append(Pair(lowering, group, _is_own(lowering, group)))
    for family, pairs in by_family.items():
        random.Random(f"{seed} {family}").shuffle(pairs)
    for turn in range(max(map(len, by_family.values()), default=0)):
        for family in sorted(by_family):
            yield from by_family[family][turn : turn + 1]


def _closest(
    patterns: Sequence[str], seed: int, progress: Callable[[str], None]
) -> Iterator[tuple[Lowering, Group]]:
    """Yield each lowering with the entry that calls it and the fewest others."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in entries_of(SUITE)):
            raise UnknownName(f"entry of the suite {SUITE}", pattern, entries_of(SUITE))
    found: dict[str, tuple[int, Group]] = {}
    for name, entry in entries_of(SUITE).items():
        group = _group(entry, seed)
        if group is None or (patterns and not any(fnmatchcase(name, one) for one in patterns)):
            continue
        progress(f"looking at {name}")
        called = _called(entry, group)
        for overload in called:
            if overload not in found or len(called) < found[overload][0]:
                found[overload] = len(called), group
    for lowering in load():
        if lowering.name in found:
            yield lowering, found[lowering.name][1]


def _group(entry: Entry, seed: int) -> Group | None:
    """Return the entry's forward group; None unless the suite judges it by values."""
    declared = class_of(SUITE, entry.name, "forward")
    if declared is not None and declared.kind not in _JUDGED_BY_VALUES:
        return None
    dtype = next((one for one in _DTYPES if one in entry.dtypes), None)
    return None if dtype is None else Group(SUITE, entry.name, dtype, "forward", entry.family, seed)


def _called(entry: Entry, group: Group) -> set[str]:
    """Return the overloads that eager PyTorch calls for an entry, and those with the entry's name."""
    try:
        called = {name for case in cases_of(group, most=_LOOKED_AT) for name in overloads_of(case)}
    except Exception:  # noqa: BLE001  # the database's own code
        return set()
    own = {one.name for one in load() if packet_of(one) in _names(entry.name)}
    return called | own


def _is_own(lowering: Lowering, group: Group) -> bool:
    return packet_of(lowering) in _names(group.entry)


def _names(entry: str) -> frozenset[str]:
    """Return the possible names of an entry's operator: ``linalg_det``, ``_linalg_det`` of ``linalg.det``."""
    plain = {entry.replace(".", "_"), entry.rpartition(".")[2]}
    return frozenset(plain | {f"_{one}" for one in plain})
