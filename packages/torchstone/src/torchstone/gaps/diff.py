"""The differences between the public APIs of two PyTorch versions."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import GapsError
from .signatures import Change, overload_changes
from .snapshot import Snapshot
from .surface import Api


@dataclass(frozen=True)
class Difference:
    """The differences of two snapshots.

    ``moved`` pairs an old name with its new one; ``changed`` says how the signature of a name differs.
    """

    old: str
    new: str
    added: tuple[Api, ...]
    removed: tuple[Api, ...]
    moved: tuple[tuple[Api, Api], ...]
    changed: tuple[tuple[str, tuple[Change, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as plain data for JSON."""
        return {
            "old": self.old,
            "new": self.new,
            "added": [{"name": one.name, "kind": one.kind} for one in self.added],
            "removed": [{"name": one.name, "kind": one.kind} for one in self.removed],
            "moved": [{"from": was.name, "to": now.name} for was, now in self.moved],
            "changed": [
                {"name": name, "changes": [{"text": one.text, "breaking": one.breaking} for one in how]}
                for name, how in self.changed
            ],
        }


def compare_snapshots(old: Snapshot, new: Snapshot) -> Difference:
    """Return which names were added, removed or moved, and which signatures changed.

    Raises :class:`GapsError` if the snapshots cover different namespaces: names that only one of them covers
    would look added or removed.
    """
    if old.namespaces != new.namespaces:
        only = sorted(set(old.namespaces) ^ set(new.namespaces))
        raise GapsError(
            f"the snapshots cover different namespaces: only one has {', '.join(only) or 'this order'}",
            hint="take both with the same --namespace options",
        )
    before, after = old.apis, new.apis
    removed = {name: api for name, api in before.items() if name not in after}
    added = {name: api for name, api in after.items() if name not in before}
    moved = list(_moves(removed, added))
    for was, now in moved:
        del removed[was.name], added[now.name]
    changed = []
    for was, now in [*moved, *((before[name], after[name]) for name in sorted(before.keys() & after.keys()))]:
        how = _changes(was, now)
        if how:
            changed.append((now.name, how))
    return Difference(
        f"torch {old.torch}",
        f"torch {new.torch}",
        tuple(added.values()),
        tuple(removed.values()),
        tuple(moved),
        tuple(sorted(changed, key=operator.itemgetter(0))),
    )


def _changes(was: Api, now: Api) -> tuple[Change, ...]:
    kind = (Change(f"was a {was.kind}, now a {now.kind}", True),) if was.kind != now.kind else ()
    return (*kind, *overload_changes(was.signatures, now.signatures))


def _moves(removed: Mapping[str, Api], added: Mapping[str, Api]) -> Iterable[tuple[Api, Api]]:
    """Yield the old and new API of each moved object: the only pair with the same home, or the same shape."""
    gone, come = dict(removed), dict(added)
    for key in (_by_home, _by_shape):
        for was, now in list(_only_pairs(gone.values(), come.values(), key)):
            del gone[was.name], come[now.name]
            yield was, now


def _only_pairs(
    gone: Iterable[Api], come: Iterable[Api], key: Callable[[Api], object]
) -> Iterator[tuple[Api, Api]]:
    """Yield the pairs with equal keys, where each API is the only one on its side with that key."""
    sides: dict[object, tuple[list[Api], list[Api]]] = defaultdict(lambda: ([], []))
    for side, apis in enumerate((gone, come)):
        for api in apis:
            if (found := key(api)) is not None:
                sides[found][side].append(api)
    for before, after in sides.values():
        if len(before) == len(after) == 1:
            yield before[0], after[0]


def _by_home(api: Api) -> object:
    return (api.home, api.kind) if api.home else None


def _by_shape(api: Api) -> object:
    return (api.leaf, api.kind, api.signatures) if api.signatures else None
