"""Chooses some of many cases, so that a new case never changes which of the others are chosen."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")


def stratified(
    cases: Sequence[T], share: int, *, name: Callable[[T], str], stratum: Callable[[T], Hashable]
) -> list[T]:
    """Return about one in ``share`` cases of each stratum, and at least one, in the order of ``cases``.

    A case is chosen by a hash of its name, independent of the other cases. Only if this chooses no
    case of a stratum does the choice depend on the others: it is the case with the lowest hash.
    """
    strata: dict[Hashable, list[T]] = defaultdict(list)
    for case in cases:
        strata[stratum(case)].append(case)

    def rank(case: T) -> int:
        return zlib.crc32(name(case).encode())

    chosen = {
        name(case)
        for members in strata.values()
        for case in ([one for one in members if rank(one) % share == 0] or [min(members, key=rank)])
    }
    return [case for case in cases if name(case) in chosen]


def leave_the_rest_to_conformance(items: Sequence[pytest.Item]) -> None:
    """Mark ``conformance`` on the cases that a test's marker leaves to the full run.

    ``sampled(share)`` keeps about one in ``share``, ``kept(id, ...)`` the cases with these ids.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if any(item.get_closest_marker(name) for name in ("sampled", "kept")):
            tests[item.nodeid.partition("[")[0]].append(item)
    for test, cases in tests.items():
        sampled, kept = (cases[0].get_closest_marker(name) for name in ("sampled", "kept"))
        chosen: Sequence[pytest.Item]
        if kept is not None:
            chosen = [item for item in cases if _id(item) in kept.args]
            if unknown := set(kept.args) - {_id(item) for item in chosen}:
                raise pytest.UsageError(f"{test} has no cases {sorted(unknown)}, which it keeps")
        elif sampled is not None:
            (share,) = sampled.args
            chosen = stratified(cases, share, name=lambda item: item.nodeid, stratum=lambda _: None)
        for item in cases:
            if item not in chosen:
                item.add_marker(pytest.mark.conformance)


def _id(item: pytest.Item) -> str:
    """Return the text in brackets at the end of a case's name."""
    return item.nodeid.partition("[")[2].removesuffix("]")
