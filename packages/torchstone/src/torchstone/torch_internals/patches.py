"""One lock for tracing, and reversible changes to PyTorch's tables.

PyTorch keeps what it needs for tracing in tables of the process: kernels, rules for fake tensors,
functions of modules. :func:`patched` puts our entries into them and removes them again:

- Only one thread traces at a time (:func:`tracing`); the lock is re-entrant.
- Blocks nest. When the outermost block ends, also by an exception, each entry is again the identical object
  that this block found.
- An entry that other code changed in the meantime is left as it is.
- Our functions apply only in the thread that traces. In any other thread an entry does what it did before,
  so PyTorch code there never meets a stand-in.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from .probing import Internal

ABSENT: Any = object()
"""The value of an entry that a table does not have."""

_lock = Internal("torch._dynamo.convert_frame.compile_lock", "tracing")
_compile_session = Internal("torch.compiler._compile_session_context", "tracing in several threads")


_thread: int | None = None
"""The identifier of the thread that traces now, or None."""


@contextmanager
def tracing() -> Iterator[None]:
    """Keep all other threads from tracing inside the block, both for Torchstone and in Dynamo.

    The lock is Dynamo's. With a separate lock, a thread that compiles (and holds Dynamo's lock) and one that
    exports (and compiles a branch of ``torch.cond``) could wait for each other.

    While ``torch.fx`` traces, PyTorch refuses calls of compiled functions in every thread, unless the trace
    is marked as part of a compilation. So this block marks it.
    """
    global _thread
    with _lock.get():
        before, _thread = _thread, threading.get_ident()
        session = (_compile_session.find() if before is None else None) or nullcontext
        try:
            with session():
                yield
        finally:
            _thread = before


@contextmanager
def no_other_traces() -> Iterator[None]:
    """Keep all other threads from tracing inside the block, without marking this thread as tracing."""
    with _lock.get():
        yield


def is_tracing() -> bool:
    """Whether this thread is inside :func:`tracing`."""
    return _thread == threading.get_ident()


class _Attributes:
    """The attributes of a module, class or object, with the methods of a dict to read and write them."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def get(self, name: str, default: Any) -> Any:
        return vars(self._owner).get(name, default)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._owner, name)


class Members:
    """The members of a set, with the methods of a dict; the value of each member is True."""

    def __init__(self, members: set[Any]) -> None:
        self._members = members

    def get(self, member: Any, default: Any) -> Any:
        return True if member in self._members else default

    def __setitem__(self, member: Any, value: Any) -> None:
        self._members.add(member)

    def __delitem__(self, member: Any) -> None:
        self._members.remove(member)


@dataclass(frozen=True, eq=False)
class Patch:
    """Entries to put into one table; the value :data:`ABSENT` removes an entry."""

    table: Any
    entries: Mapping[Any, Any]
    changed: Callable[[], Any] | None = None
    """Called after each change, for example to clear a cache of the table."""

    def read(self) -> dict[Any, Any]:
        """Return the values that the table has now for the keys of the entries."""
        return {key: self.table.get(key, ABSENT) for key in self.entries}

    def write(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            if value is not ABSENT:
                self.table[key] = value
            elif self.table.get(key, ABSENT) is not ABSENT:
                del self.table[key]
        if self.changed is not None:
            self.changed()


@contextmanager
def patched(*patches: Patch) -> Iterator[None]:
    """Apply the patches inside the block, as the module's docstring describes. Takes the tracing lock."""
    with tracing():
        placed: list[tuple[Patch, dict[Any, Any]]] = []
        try:
            for patch in patches:
                placed.append((patch, patch.read()))
                patch.write(patch.entries)
            yield
        finally:
            for patch, before in reversed(placed):
                now = patch.read()
                patch.write({key: before[key] for key, ours in patch.entries.items() if now[key] is ours})


def for_tracing_thread(function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``function`` in the thread that traces, and ``otherwise`` in any other."""

    @functools.wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (function if is_tracing() else otherwise)(*args, **kwargs)

    return chosen


def attributes(owner: Any, **values: Any) -> Patch:
    """Return a patch that sets attributes of a module, class or object, for all threads."""
    return Patch(_Attributes(owner), values)


def functions(owner: Any, **replacements: Callable[..., Any]) -> Patch:
    """Return a patch that replaces functions of a module or class in the thread that traces."""
    return attributes(owner, **{name: _in_place_of(owner, name, one) for name, one in replacements.items()})


def _in_place_of(owner: Any, name: str, function: Callable[..., Any]) -> Any:
    chosen = for_tracing_thread(function, getattr(owner, name))
    is_bound = isinstance(inspect.getattr_static(owner, name), staticmethod | classmethod)
    return staticmethod(chosen) if is_bound else chosen
