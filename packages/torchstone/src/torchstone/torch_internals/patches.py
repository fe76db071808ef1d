"""One lock for tracing, and one reversible table of changes to PyTorch.

PyTorch keeps what it needs for tracing in tables of the process: kernels, rules for fake tensors,
functions of modules. :func:`patched` puts entries of ours into them and takes them out again:

- Only one thread traces at a time (:func:`tracing`); the lock is re-entrant.
- Blocks nest. The last block to leave puts back the identical object that the first one found,
  also after an exception.
- An entry that someone else changed meanwhile stays as they left it.
- A function of ours works in the thread that traces. In any other thread the entry does what it
  did before, so PyTorch used there does not meet a stand-in.
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
"""The thread that traces now."""


@contextmanager
def tracing() -> Iterator[None]:
    """Inside, no other thread traces: not for Torchstone, and not in Dynamo, whose lock this is.

    With a lock of its own, a thread that compiles (and holds Dynamo's) and one that exports
    (and compiles a branch of ``torch.cond``) could wait for each other.

    Where ``torch.fx`` traces and nothing says that this is part of a compilation, PyTorch refuses calls
    of compiled functions, in every thread. So this says it.
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
    """Inside, no other thread traces; this one runs as ever."""
    with _lock.get():
        yield


def is_tracing() -> bool:
    """Whether this thread is inside :func:`tracing`."""
    return _thread == threading.get_ident()


class _Attributes:
    """The attributes of a module, class or object, with what a dict offers to read and write them."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def get(self, name: str, default: Any) -> Any:
        return vars(self._owner).get(name, default)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._owner, name)


class Members:
    """The members of a set, with what a dict offers: a member's value is True."""

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
    """Entries of one table, and what is put there; :data:`ABSENT` takes an entry out."""

    table: Any
    entries: Mapping[Any, Any]
    changed: Callable[[], Any] | None = None
    """Called after each change: for caches of the table."""

    def read(self) -> dict[Any, Any]:
        """What the table has now under the keys of the entries."""
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
    """Inside, each patch is in place; see the module for what holds. Takes the tracing lock."""
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
    """``function`` in the thread that traces, ``otherwise`` in every other."""

    @functools.wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (function if is_tracing() else otherwise)(*args, **kwargs)

    return chosen


def attributes(owner: Any, **values: Any) -> Patch:
    """``values`` as attributes of a module, class or object, for every thread."""
    return Patch(_Attributes(owner), values)


def functions(owner: Any, **replacements: Callable[..., Any]) -> Patch:
    """Functions in place of those of a module or class, in the thread that traces."""
    return attributes(owner, **{name: _in_place_of(owner, name, one) for name, one in replacements.items()})


def _in_place_of(owner: Any, name: str, function: Callable[..., Any]) -> Any:
    chosen = for_tracing_thread(function, getattr(owner, name))
    is_bound = isinstance(inspect.getattr_static(owner, name), staticmethod | classmethod)
    return staticmethod(chosen) if is_bound else chosen
