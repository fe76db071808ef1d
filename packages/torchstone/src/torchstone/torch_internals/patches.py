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
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .probing import Internal

ABSENT: Any = object()
"""The value of an entry that a table does not have."""

_lock = Internal("torch._dynamo.convert_frame.compile_lock", "tracing")


_thread: int | None = None
"""The thread that traces now."""


@contextmanager
def tracing() -> Iterator[None]:
    """Inside, no other thread traces: not for Torchstone, and not in Dynamo, whose lock this is.

    With a lock of its own, a thread that compiles (and holds Dynamo's) and one that exports
    (and compiles a branch of ``torch.cond``) could wait for each other.
    """
    global _thread
    with _lock.get():
        before, _thread = _thread, threading.get_ident()
        try:
            yield
        finally:
            _thread = before


def is_tracing() -> bool:
    """Whether this thread is inside :func:`tracing`."""
    return _thread == threading.get_ident()


@dataclass(eq=False)
class Patch:
    """One entry of a table (of a dict, or an attribute of an object), and what is put there.

    ``value`` may be :data:`ABSENT`, which takes the entry out.
    """

    table: Any
    key: Any
    value: Any
    is_attribute: bool = False
    changed: Callable[[], Any] | None = None
    """Called after each change: for caches of the table."""

    def read(self) -> Any:
        table = vars(self.table) if self.is_attribute else self.table
        return table.get(self.key, ABSENT)

    def write(self, value: Any) -> None:
        if not self.is_attribute:
            if value is ABSENT:
                self.table.pop(self.key, None)
            else:
                self.table[self.key] = value
        elif value is ABSENT:
            delattr(self.table, self.key)
        else:
            setattr(self.table, self.key, value)
        if self.changed is not None:
            self.changed()


@contextmanager
def patched(*patches: Patch) -> Iterator[None]:
    """Inside, each patch is in place; see the module for what holds. Takes the tracing lock."""
    with tracing():
        placed: list[tuple[Patch, Any]] = []
        try:
            for patch in patches:
                placed.append((patch, patch.read()))
                patch.write(patch.value)
            yield
        finally:
            for patch, before in reversed(placed):
                if patch.read() is patch.value:
                    patch.write(before)


def for_tracing_thread(function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` in the thread that traces, ``otherwise`` in every other."""

    @functools.wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (function if is_tracing() else otherwise)(*args, **kwargs)

    return chosen


def replacing(owner: Any, name: str, function: Callable[..., Any]) -> Patch:
    """``function`` in place of the one that ``owner``, a module or class, has under ``name``."""
    before = vars(owner)[name]
    return Patch(owner, name, for_tracing_thread(function, before), is_attribute=True)
