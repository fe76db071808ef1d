"""The figures of the ``cpu`` target, as the operating system reports them for this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """Return the name of the processor."""
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def total_memory() -> int | None:
    """Return the bytes of physical memory, or None if the system does not report them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def available_memory() -> int | None:
    """Return the bytes that can be used without swapping, or None if the system does not report them."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
