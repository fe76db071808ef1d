"""``torchstone.profile()``: record what is compiled and run inside a block of code."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .. import spans
from ..errors import EngineError, ProfilingError
from ..runtime.counters import counters
from ..runtime.engine_events import EngineEvents
from ..runtime.executable import LoadedProgram
from . import chrome, report
from .memory import Sampler
from .record import Recompile, Record, Span
from .roofline import Peaks


class Profile(Record):
    """The record of one :func:`profile` block.

    ``print`` shows it as tables; :meth:`to_dict` returns the same as JSON-able data.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return all tables as JSON-able data."""
        return report.to_dict(self)

    def save_chrome_trace(self, path: str | Path) -> Path:
        """Write a trace for ``chrome://tracing`` or Perfetto; the file appears complete or not at all."""
        return chrome.save(self, Path(path))

    def __str__(self) -> str:
        return report.text(self)


_turn = threading.Lock()


@contextmanager
def profile(*, peaks: Peaks | None = None) -> Iterator[Profile]:
    """Record what is compiled and run inside the block, in all threads of the process.

    With ``peaks``, from :func:`torchstone.profiling.measure_peaks`, the tables show each operator's place on
    the roofline. Raises :class:`~torchstone.errors.ProfilingError` while another such block is open.
    """
    if not _turn.acquire(blocking=False):
        raise ProfilingError(
            "a profile is being recorded already, and the engine has one profiler",
            hint="end the other `with torchstone.profile()` block first",
        )
    try:
        found = Profile(peaks)
        recorder = _Recorder(found)
        spans.recorders.append(recorder)
        try:
            yield found
        finally:
            spans.recorders.remove(recorder)
            recorder.finish()
    finally:
        _turn.release()


class _Recorder:
    """A recorder that writes compilations and calls into a :class:`Profile` while its block is open."""

    def __init__(self, found: Profile) -> None:
        self._found = found
        self._numbers: dict[int, int] = {}
        self._kept: list[LoadedProgram] = []
        self._calls = 0
        self._lock = threading.Lock()
        found.before = counters.snapshot()
        self._sampler = Sampler()
        self._engine: EngineEvents | None = None
        try:
            self._engine = EngineEvents()
        except EngineError as error:
            found.notes.append(f"no times of operators: {error.message}")
        found.start_ns = found.settled_ns = time.time_ns()

    @contextmanager
    def span(self, kind: spans.Kind, name: str, subject: Any) -> Iterator[None]:
        program, call = self._numbered(subject) if kind == "run" else (None, None)
        marked = nullcontext() if call is None or self._engine is None else self._engine.mark(call)
        start = time.time_ns()
        try:
            with marked:
                yield
        finally:
            thread = threading.get_native_id()
            span = Span(kind, name, start, time.time_ns(), thread, program, call)
            with self._lock:
                self._found.spans.append(span)

    def recompiled(self, name: str, reason: str) -> None:
        with self._lock:
            self._found.recompiles.append(Recompile(name, reason))

    def _numbered(self, program: LoadedProgram) -> tuple[int, int]:
        with self._lock:
            if id(program) not in self._numbers:
                self._numbers[id(program)] = len(self._kept)
                self._kept.append(program)
            self._calls += 1
            return self._numbers[id(program)], self._calls

    def finish(self) -> None:
        found = self._found
        found.end_ns = time.time_ns()
        found.memory = self._sampler.stop()
        if self._engine is not None:
            found.events = self._engine.stop()
        found.after = counters.snapshot()
        found.programs = [one.compiled for one in self._kept]
        if found.calls() and self._engine is not None and not found.events:
            found.notes.append(
                "the engine recorded no events: another profiler, such as jax.profiler, was running"
            )
        self._note_dynamo()

    def _note_dynamo(self) -> None:
        from ..torch_internals.profiling import compilations

        found = self._found
        for one in compilations(found.start_ns / 1e9):
            whole = one.entire_frame_compile_time_s or 0.0
            backend = one.backend_compile_time_s or 0.0
            start = int(one.start_time * 1e9)
            ours = sum(
                span.seconds
                for span in found.spans
                if span.kind == "compile" and start <= span.start_ns < start + int(whole * 1e9)
            )
            thread = threading.get_native_id()
            middle = start + int((whole - backend) * 1e9)
            found.spans.append(Span("compile", "Dynamo: trace", start, middle, thread))
            aot = middle + int(max(backend - ours, 0.0) * 1e9)
            found.spans.append(Span("compile", "AOTAutograd: trace and partition", middle, aot, thread))
            if one.recompile_reason:
                place = f"{one.co_filename}:{one.co_firstlineno}"
                reason = " ".join(one.recompile_reason.split())
                found.recompiles.append(Recompile(one.co_name, reason, place, whole))
