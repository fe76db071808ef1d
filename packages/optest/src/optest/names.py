"""Names in messages: finds known names that are similar to a wrong one, and formats lists of names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def near_misses(name: str, known: Iterable[str], limit: int = 5) -> list[str]:
    """Return up to ``limit`` names of ``known`` that resemble ``name``, the likeliest first.

    A name resembles another if the spelling is similar, or if one contains the other
    (from three letters on); case does not matter.
    """
    by_folded: dict[str, str] = {}
    for one in known:
        by_folded.setdefault(one.casefold(), one)
    wanted = name.casefold()
    similar = difflib.get_close_matches(wanted, by_folded, n=limit, cutoff=0.6)
    if len(wanted) >= 3:
        inside = (one for one in by_folded if wanted in one or (len(one) >= 3 and one in wanted))
        similar += [one for one in sorted(inside, key=len) if one not in similar]
    return [by_folded[one] for one in similar[:limit]]


def listing(names: Iterable[str], *, last: str = "and", limit: int = 24) -> str:
    """Return ``a, b and c``; for more than ``limit`` names, the first ones and how many follow."""
    items: Sequence[str] = list(names)
    if len(items) > limit:
        return f"{', '.join(items[:limit])} {last} {len(items) - limit} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
