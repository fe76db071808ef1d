"""The data that a profile records: spans, the engine's events, memory and recompilations."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .. import spans
from ..runtime.counters import Stats
from ..runtime.engine_events import EngineEvent
from ..runtime.executable import Compiled
from .roofline import Peaks


@dataclass(frozen=True)
class Span:
    """A compile phase, or one call of a program or of a function that eager PyTorch runs.

    ``program`` is the program's index in :attr:`Record.programs`. Times are nanoseconds since the epoch.
    """

    kind: spans.Kind
    name: str
    start_ns: int
    end_ns: int
    thread: int
    program: int | None = None
    call: int | None = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True)
class Recompile:
    """A new compilation of something that was compiled before; ``reason`` names the guard that failed."""

    name: str
    reason: str
    place: str = ""
    seconds: float = 0.0


@dataclass
class Record:
    """A record of what was compiled and run in a block of code; complete when the block ends."""

    peaks: Peaks | None = None
    spans: list[Span] = field(default_factory=list)
    programs: list[Compiled] = field(default_factory=list)
    events: list[EngineEvent] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    before: Stats = field(default_factory=Stats)
    after: Stats = field(default_factory=Stats)
    notes: list[str] = field(default_factory=list)
    start_ns: int = 0
    end_ns: int = 0
    settled_ns: int = 0

    def settle(self) -> None:
        """Exclude the calls so far from the times of operators: first calls are slower than later ones."""
        self.settled_ns = time.time_ns()

    def calls(self) -> list[Span]:
        """Return the calls of programs that began after :meth:`settle`."""
        return [one for one in self.spans if one.kind == "run" and one.start_ns >= self.settled_ns]

    def eager_calls(self) -> list[Span]:
        """Return the calls of functions that eager PyTorch runs, if they began after :meth:`settle`."""
        return [one for one in self.spans if one.kind == "eager" and one.start_ns >= self.settled_ns]
