"""Reads the engine's own profiler: each instruction that ran, on which thread and for which call."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from . import _jaxlib

_MARK = "torchstone#"


@dataclass(frozen=True)
class EngineEvent:
    """One instruction of optimized HLO that ran.

    ``start_ns`` is in nanoseconds since the epoch. ``call`` is the number of the mark that the instruction
    ran in. ``thread`` names a thread of the engine, or is None for the caller's own thread. ``own_ns`` leaves
    out the time of other instructions that ran inside this one on the same thread.
    """

    name: str
    call: int
    start_ns: int
    duration_ns: int
    own_ns: int
    thread: str | None


@dataclass(frozen=True)
class _Mark:
    call: int
    start: int
    end: int


@dataclass
class _Raw:
    name: str
    start: int
    duration: int
    inside: int = 0


class EngineEvents:
    """A session of the engine's profiler. A process can have only one at a time."""

    def __init__(self) -> None:
        options = _jaxlib.optional("_profiler", "ProfileOptions")()
        options.python_tracer_level, options.host_tracer_level = 0, 1  # record instructions, but not Python
        self._session = _jaxlib.optional("_profiler", "ProfilerSession")(options)
        self._mark = _jaxlib.optional("_profiler", "TraceMe")
        self._read = _jaxlib.optional("_profile_data", "ProfileData").from_serialized_xspace

    def mark(self, call: int) -> AbstractContextManager[Any]:
        """Return a context manager; what the engine runs inside its block belongs to ``call``."""
        return self._mark(f"{_MARK}{call}")

    def stop(self) -> list[EngineEvent]:
        """End the session; return the instructions that ran inside a mark, sorted by their start."""
        planes = list(self._read(self._session.stop()).planes)
        began = next(
            (int(value) for p in planes for name, value in p.stats if name == "profile_start_time"), 0
        )
        lines = [
            (f"{line.name} {number}", *_of_line(line.events))
            for plane in planes
            for number, line in enumerate(plane.lines)
        ]
        every = [mark for _, marks, _ in lines for mark in marks]
        found = []
        for thread, marks, events in lines:
            for event in events:
                mark = _around(event, marks) or _around(event, every)
                if mark is not None:
                    found.append(
                        EngineEvent(
                            event.name,
                            mark.call,
                            began + event.start,
                            event.duration,
                            event.duration - event.inside,
                            None if mark in marks else thread,
                        )
                    )
        return sorted(found, key=lambda one: one.start_ns)


def _of_line(events: Iterable[Any]) -> tuple[list[_Mark], list[_Raw]]:
    """Return the marks of one thread, and its instructions with the time of others inside each."""
    marks, found, open_ = [], [], []  # type: ignore[var-annotated]
    for event in sorted(events, key=lambda one: (one.start_ns, -one.duration_ns)):
        start, duration = round(event.start_ns), round(event.duration_ns)
        if event.name.startswith(_MARK):
            marks.append(_Mark(int(event.name.removeprefix(_MARK)), start, start + duration))
        elif any(name == "hlo_op" for name, _ in event.stats):
            while open_ and open_[-1].start + open_[-1].duration <= start:
                open_.pop()
            if open_:
                open_[-1].inside += duration
            found.append(_Raw(event.name, start, duration))
            open_.append(found[-1])
    return marks, found


def _around(event: _Raw, marks: Iterable[_Mark]) -> _Mark | None:
    return next((mark for mark in marks if mark.start <= event.start < mark.end), None)
