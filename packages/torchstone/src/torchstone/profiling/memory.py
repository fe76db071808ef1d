"""The memory of this process over time, sampled by a background thread."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

EVERY_S = 0.01
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Return the bytes of this process that are in RAM now; None if the system does not report them.

    Only Linux does.
    """
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


class Sampler:
    """A thread that samples the resident memory until ``stop`` is called.

    ``samples`` are pairs: the time since the epoch in nanoseconds, and the bytes.
    """

    def __init__(self) -> None:
        self.samples: list[tuple[int, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torchstone-memory", daemon=True)
        self._note()
        self._thread.start()

    def stop(self) -> list[tuple[int, int]]:
        self._ended.set()
        self._thread.join()
        self._note()
        return self.samples

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._note()

    def _note(self) -> None:
        found = resident_bytes()
        if found is not None:
            self.samples.append((time.time_ns(), found))
