"""Engines: bytes and buffers in, buffers out.

What lives here: compiling StableHLO modules, running them, buffers, the
compilation cache and PJRT plugins. Nothing here knows ATen or builds
operations, and it works in a process without torch.
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
    """``array`` as a buffer that ``engine``'s executables take; import parameters once, not per call."""
    return engine.import_array(array)


def stats() -> Stats:
    """A snapshot of the counters of copies, compilations and cache hits."""
    return counters.snapshot()


def reset_stats() -> None:
    """Set every counter to zero."""
    counters.reset()
