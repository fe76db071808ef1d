"""How much memory there is for a case, asked before any of it is taken.

Linux kills a process that takes more than there is, and in optest's own process that would be
the end of the run.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def free_bytes() -> int | None:
    """Bytes that this machine, and the container this process is in, can still give; None if unknown."""
    found = [one for one in (_of_machine(), _of_container()) if one is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_container() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        limit = (_GROUP / "memory.max").read_text().strip()
        if limit != "max":
            return max(int(limit) - int((_GROUP / "memory.current").read_text()), 0)
    return None
