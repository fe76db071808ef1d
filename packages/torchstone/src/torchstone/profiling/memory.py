"""The memory of this process over time, sampled by a thread."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

EVERY_S = 0.01
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM now; None where the system does not say (it is not Linux)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


class Sampler:
    """Notes the resident memory until it is stopped: ``samples`` are times since the epoch (ns) and bytes."""

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
