"""Engines, which compile StableHLO modules and run them on buffers.

This package compiles and runs modules, and has buffers, the compilation
cache and PJRT plugins. It knows nothing of ATen, does not trace or lower
programs, and works in a process without torch.
"""

from __future__ import annotations

from typing import Any

from .buffers import Buffer, BufferSpec
from .counters import Copies, Stats, counters
from .engine import CompileOptions, Engine, Executable
from .engines import ENGINES, get_engine
from .hosted import HostedEngine
from .modules import refine
from .simulated import SimulatedEngine

__all__ = [
    "ENGINES",
    "Buffer",
    "BufferSpec",
    "CompileOptions",
    "Copies",
    "Engine",
    "Executable",
    "HostedEngine",
    "SimulatedEngine",
    "Stats",
    "get_engine",
    "import_array",
    "refine",
    "reset_stats",
    "stats",
]


def import_array(engine: Engine, array: Any) -> Buffer:
    """Import ``array`` as a buffer for ``engine``'s executables; import parameters once, not in each call."""
    return engine.import_array(array)


def stats() -> Stats:
    """Return a snapshot of the counters of copies, compilations and cache hits."""
    return counters.snapshot()


def reset_stats() -> None:
    """Set every counter to zero."""
    counters.reset()
