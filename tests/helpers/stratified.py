"""Choosing a part of many cases, so that a new case never changes which of the others are chosen."""

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
    """About one in ``share`` of the cases of each stratum, and at least one, in the order of ``cases``.

    A case is chosen by a hash of its name, whatever else there is. Only a stratum of which no hash
    falls into the share depends on its members: the one with the lowest hash stands for it.
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
    """Mark ``conformance`` on all but about one in ``share`` cases of a test marked ``sampled(share)``."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        (share,) = cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]  # it has one
        chosen = stratified(cases, share, name=lambda item: item.nodeid, stratum=lambda _: None)
        for item in cases:
            if item not in chosen:
                item.add_marker(pytest.mark.conformance)
