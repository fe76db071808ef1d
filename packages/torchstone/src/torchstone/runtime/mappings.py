"""Watches memory mappings: compiled code needs several per function, and Linux allows a process 65,530.

XLA's compiler for the CPU ends the process if it cannot get a mapping. So programs that are only kept for
reuse are given up in time (:func:`give_up_when_scarce`), and a new program is refused if mappings run out.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import EngineError

_EVERY = 16
"""How many compilations there are between two checks, each of which takes milliseconds.

So many compilations need fewer mappings than remain free at ``_FULL``.
"""
_SCARCE, _FULL = 0.5, 0.9
"""The shares of the limit from which on kept programs are given up, and new programs refused."""

_releases: list[Callable[[], None]] = []
_LIMIT, _OWN = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")


def give_up_when_scarce(release: Callable[[], None]) -> None:
    """Register ``release`` to be called if mappings become scarce; it must drop programs that nobody uses."""
    _releases.append(release)


def mappings() -> tuple[int, int] | None:
    """Return how many mappings this process has and may have; None if the system does not tell."""
    try:
        return _OWN.read_bytes().count(b"\n"), int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


class Watch:
    """Checks the mappings of the process before programs are compiled. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unseen = _EVERY
        self._share = _SCARCE

    def make_room(self) -> None:
        """Give up kept programs if mappings are scarce; raise :class:`EngineError` if that does not help."""
        with self._lock:
            self._unseen += 1
            if self._unseen <= _EVERY:
                return
            self._unseen = 1
        found = mappings()
        if found is None or found[0] < self._share * found[1]:
            return
        for release in tuple(_releases):
            release()
        gc.collect()
        used, limit = mappings() or found
        # Programs in use remain. Release again when half of the mappings that are left are used too.
        self._share = min((used / limit + 1) / 2, _FULL)
        if used >= _FULL * limit:
            self._unseen = _EVERY
            raise EngineError(
                f"this process has {used} of {limit} memory mappings, and compiled programs need more",
                hint="drop programs that are not needed (torch.compiler.reset() drops compiled functions) "
                "or raise the limit: sysctl vm.max_map_count",
            )


watch = Watch()
