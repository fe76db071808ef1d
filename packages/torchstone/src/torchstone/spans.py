"""Spans of time that profiles record: phases of compilation, calls of programs, functions in eager PyTorch.

Recorders add themselves to :data:`recorders`. If there are none, a span costs one check:
``if spans.recorders or spans.torch_records()``. This module has no clock and no output format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Literal, Protocol

Kind = Literal["compile", "run", "eager"]


class Recorder(Protocol):
    """Something that records spans and events."""

    def span(self, kind: Kind, name: str, subject: Any) -> AbstractContextManager[None]:
        """Return a context whose time is recorded; for a call, ``subject`` is the program."""
        ...

    def recompiled(self, name: str, reason: str) -> None:
        """Note that ``name`` is compiled again, and why."""
        ...


recorders: list[Recorder] = []
torch_records: Callable[[], bool] = bool
"""Whether PyTorch's own profiler is on; False until :func:`follow_torch` is called."""


def follow_torch() -> None:
    """Make spans appear in ``torch.profiler`` whenever it is on. Loads torch."""
    global torch_records
    from .torch_internals.profiling import is_profiling

    torch_records = is_profiling


def span(kind: Kind, name: str, subject: Any = None) -> AbstractContextManager[None]:
    """Return a context that all active recorders record under ``name``."""
    if recorders or torch_records():
        return _recorded(kind, name, subject)
    return nullcontext()


@contextmanager
def _recorded(kind: Kind, name: str, subject: Any) -> Iterator[None]:
    with ExitStack() as stack:
        if torch_records():
            from torch.profiler import record_function

            stack.enter_context(record_function(f"torchstone::{name}"))
        for recorder in tuple(recorders):
            stack.enter_context(recorder.span(kind, name, subject))
        yield


def recompiled(name: str, reason: Callable[[], str]) -> None:
    """Tell recorders that ``name`` is compiled again; ``reason`` is called only if there is a recorder."""
    for recorder in tuple(recorders):
        recorder.recompiled(name, reason())
