"""A profile in Chrome's trace event format, which chrome://tracing and Perfetto show."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from optest.files import NewFile

from .attribution import ENGINE, Origin
from .optimized import kernels
from .record import Record


def save(profile: Record, path: Path) -> Path:
    """Write the trace, completely or not at all. Raises ``OSError`` if ``path`` cannot be written."""
    with NewFile(path) as new:
        new.file.write(json.dumps(trace(profile)).encode())
    return path


def trace(profile: Record) -> dict[str, Any]:
    """Return the trace: complete events for calls, kernels and compile phases, and a memory counter.

    Times are in microseconds.
    """
    process, threads = os.getpid(), _Threads()
    events = []
    callers = {span.call: span.thread for span in profile.spans}
    programs = {span.call: span.program for span in profile.spans}
    known = [kernels(program.text) for program in profile.programs]

    def complete(name: str, category: str, start: int, duration: int, thread: int, args: Any) -> None:
        events.append(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": (start - profile.start_ns) / 1e3,
                "dur": duration / 1e3,
                "pid": process,
                "tid": thread,
                "args": args,
            }
        )

    for span in profile.spans:
        own = {} if span.program is None else {"program": span.program, "call": span.call}
        complete(span.name, span.kind, span.start_ns, span.end_ns - span.start_ns, span.thread, own)
    for event in profile.events:
        program = programs.get(event.call)
        kernel = None if program is None else known[program].get(event.name)
        origins = [Origin.of(part.origin) for part in kernel.parts] if kernel else []
        args = {
            "operators": sorted({one.operator for one in origins}) or [ENGINE],
            "modules": sorted({one.module for one in origins}),
            "flops": kernel.flops if kernel else 0,
            "bytes": kernel.bytes if kernel else 0,
            "call": event.call,
        }
        thread = callers[event.call] if event.thread is None else threads.number(event.thread)
        complete(event.name, "kernel", event.start_ns, event.duration_ns, thread, args)
    for at, size in profile.memory:
        place = {"ph": "C", "ts": (at - profile.start_ns) / 1e3, "pid": process, "tid": 0}
        events.append({"name": "resident memory", "cat": "memory", **place, "args": {"bytes": size}})
    for name, number in threads.names.items():
        place = {"ph": "M", "ts": 0, "pid": process, "tid": number}
        events.append({"name": "thread_name", "cat": "__metadata", **place, "args": {"name": name}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


class _Threads:
    """Numbers for the engine's threads, which have only names; they are larger than any system thread id."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.names.setdefault(name, (1 << 30) + len(self.names))
