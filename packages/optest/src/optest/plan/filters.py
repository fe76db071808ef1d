"""``--filter``: decides which cases to keep, and suggests similar values if none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..core.case import TestCase
from ..errors import UnknownName, UsageError
from ..names import listing, near_misses

_KEYS: dict[str, Callable[[TestCase], Iterable[str]]] = {
    "op": lambda case: (case.op,),
    "category": lambda case: (case.descriptor.category,),
    "tag": lambda case: case.descriptor.tags,
    "dtype": lambda case: case.dtypes,
    "phase": lambda case: (case.phase,),
    "note": lambda case: (case.note,),
    "id": lambda case: (case.id,),
}


@dataclass
class Filter:
    """One ``--filter``: ``[!][KEY=]PATTERN[,PATTERN…]``, with shell patterns that ignore case.

    KEY is op, category, tag, dtype, phase, note or id; without a key, op, category, tag
    and id are compared. ``!`` inverts the filter.
    """

    text: str
    patterns: tuple[str, ...]
    keys: tuple[str, ...]
    negated: bool
    seen: set[str] = field(default_factory=set)

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Parse a filter; raises :class:`UnknownName` for its key, :class:`UsageError` without a pattern."""
        body = text.removeprefix("!")
        key, equals, rest = body.partition("=")
        if equals and key not in _KEYS:
            raise UnknownName(f"key of --filter {text!r}:", key, _KEYS)
        patterns = tuple(
            one.strip().casefold() for one in (rest if equals else body).split(",") if one.strip()
        )
        if not patterns:
            raise UsageError(
                f"--filter {text!r} has no pattern; write op=conv*, tag=reduction or !dtype=bfloat16"
            )
        return cls(text, patterns, (key,) if equals else ("op", "category", "tag", "id"), body != text)

    def keeps(self, case: TestCase) -> bool:
        """Whether to keep ``case``; remembers its values for :func:`nothing_matched`."""
        values = [value for key in self.keys for value in _KEYS[key](case)]
        self.seen.update(value for value in values if value != case.id)
        found = any(fnmatchcase(value.casefold(), one) for value in values for one in self.patterns)
        return found != self.negated

    def near(self) -> list[str]:
        """Return values of cases that are similar to a pattern."""
        plain = [one.strip("*?") for one in self.patterns]
        return list(dict.fromkeys(hit for one in plain for hit in near_misses(one, sorted(self.seen))))


def nothing_matched(filters: Iterable[Filter], source: str) -> UsageError:
    """Return the error for ``filters`` that leave no case of ``source``."""
    lines = []
    for one in filters:
        near = one.near()
        options = sorted(one.seen)
        rest = f"did you mean {listing(near, last='or')}?" if near else f"there are {listing(options)}"
        lines.append(f"--filter {one.text}: {rest}")
    return UsageError("\n  ".join([f"no case of {source} passes the filters", *lines]))
