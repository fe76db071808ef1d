"""The memory that is available for a case, to be checked before any of it is used.

Linux kills a process that uses more memory than there is. If that is optest's own process, the run ends.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def free_bytes() -> int | None:
    """Return the bytes available on this machine and in this process's container; None if unknown."""
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
