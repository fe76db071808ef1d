"""Memory mappings: compiled code takes several per function, and Linux gives a process 65,530.

XLA's compiler for the CPU ends the process when it gets none. So what is kept only for another use is given
up in time (:func:`give_up_when_scarce`), and a program that could get none is refused.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import EngineError

_EVERY = 16
"""Compilations between two looks, which take milliseconds each; they need less than what `_FULL` leaves."""
_SCARCE, _FULL = 0.5, 0.9
"""Shares of the limit from which on kept programs are given up, and new ones refused."""

_releases: list[Callable[[], None]] = []
_LIMIT, _OWN = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")


def give_up_when_scarce(release: Callable[[], None]) -> None:
    """Call ``release``, which forgets programs that nobody holds, when mappings become scarce."""
    _releases.append(release)


def mappings() -> tuple[int, int] | None:
    """How many this process has and how many it may have; None where the system does not say."""
    try:
        return _OWN.read_bytes().count(b"\n"), int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


class Watch:
    """Looks at the mappings of the process before programs are compiled. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unseen = _EVERY
        self._share = _SCARCE

    def make_room(self) -> None:
        """Give up kept programs if mappings are scarce; raises :class:`EngineError` if that does not help."""
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
        # What others hold stays: the next time is when half of what is left is gone too.
        self._share = min((used / limit + 1) / 2, _FULL)
        if used >= _FULL * limit:
            self._unseen = _EVERY
            raise EngineError(
                f"this process has {used} of {limit} memory mappings, and compiled programs need more",
                hint="drop programs that are not needed (torch.compiler.reset() drops compiled functions) "
                "or raise the limit: sysctl vm.max_map_count",
            )


watch = Watch()
