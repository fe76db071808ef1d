"""Counters of the runtime: copies that it had to make, compilations and cache hits.

Not here: timing, and the decision to copy (see :mod:`.imports`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Direction = Literal["in", "out"]


@dataclass(frozen=True)
class Copies:
    """How many tensors were copied for one reason, and their total bytes."""

    count: int = 0
    bytes: int = 0

    def plus(self, size: int) -> Copies:
        return Copies(self.count + 1, self.bytes + size)


@dataclass(frozen=True)
class Stats:
    """A snapshot of the counters, over all engines of this process.

    ``copies_in`` and ``copies_out`` map a reason (``"strided"``, ``"unaligned"``,
    ``"host to device"``, …) to :class:`Copies`; a tensor that crosses without a
    copy is not counted.
    """

    copies_in: Mapping[str, Copies] = field(default_factory=dict)
    copies_out: Mapping[str, Copies] = field(default_factory=dict)
    compiles: int = 0
    memory_hits: int = 0
    disk_hits: int = 0
    disk_stores: int = 0


class Counters:
    """Thread-safe counters; :data:`counters` are those of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self._copies: dict[Direction, dict[str, Copies]] = {"in": {}, "out": {}}
            self._events = {"compiles": 0, "memory_hits": 0, "disk_hits": 0, "disk_stores": 0}

    def copied(self, direction: Direction, reason: str, size: int) -> None:
        """Count one tensor of ``size`` bytes that had to be copied."""
        with self._lock:
            table = self._copies[direction]
            table[reason] = table.get(reason, Copies()).plus(size)

    def happened(self, event: Literal["compiles", "memory_hits", "disk_hits", "disk_stores"]) -> None:
        with self._lock:
            self._events[event] += 1

    def snapshot(self) -> Stats:
        with self._lock:
            return Stats(
                copies_in=MappingProxyType(dict(self._copies["in"])),
                copies_out=MappingProxyType(dict(self._copies["out"])),
                **self._events,
            )


counters = Counters()
