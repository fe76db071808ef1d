"""Entering and leaving a redirection: :class:`redirected`.

Patches are the process's and are counted: the first scope puts them in place, the last one takes them out.
The mode is each thread's own. Threads that are started inside a scope enter it (``areas/threads.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ContextDecorator
from types import TracebackType

import torch

from ..torch_internals.devices import default_device
from . import patching
from .callers import Callers
from .mode import RedirectMode
from .policy import Policy
from .recorder import Log
from .scope import ACTIVE, Scope, own_scopes
from .targets import resolve

_LOCK = threading.RLock()


class redirected(ContextDecorator):
    """Runs what is inside on ``target`` where it says ``source``; leaves no trace behind.

    ``target``: ``auto`` (an accelerator that is here, else ``cpu``), a device type with an optional index,
    or a :class:`torch.device`; with ``auto``, the setting ``redirect`` may name it. ``policy``: what has
    no meaning on the target raises (``strict``), warns once (``warn``) or is silent (``quiet``).
    ``devices``: how many CUDA devices the ``cpu`` target stands for.
    ``trust``: packages that are to be told that CUDA is here, or a mapping from package to yes or no.
    ``log`` is called with an :class:`~.recorder.Event` for each redirected call.

    A default device that is set inside with ``torch.set_default_device`` ends with the scope.

    Entering gives the :class:`~.scope.Scope`, or None where nothing is redirected (a real CUDA device and
    no other target asked for; the setting ``redirect=off``). It may be nested, entered again, shared by
    threads and used as a decorator. Entering raises :class:`~torchstone.errors.RedirectError` for an
    unknown source or policy and :class:`~torchstone.errors.RedirectTargetError` for an unknown or absent
    target.
    """

    def __init__(
        self,
        source: str = "cuda",
        target: str | torch.device = "auto",
        *,
        policy: str = "warn",
        devices: int = 1,
        trust: Iterable[str] | Mapping[str, bool] | None = None,
        log: Log | None = None,
    ) -> None:
        self._make: Callable[[], Scope | None] = lambda: _make(
            source, target, devices, policy, Callers(trust), log
        )
        self._entered = threading.local()

    def _recreate_cm(self) -> redirected:
        """Each call of a decorated function has a scope of its own (what ContextDecorator asks for)."""
        return self

    def __enter__(self) -> Scope | None:
        scope = self._make()
        if not hasattr(self._entered, "stack"):
            self._entered.stack = []
        undo = enter(scope) if scope is not None else None
        self._entered.stack.append(undo)
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        undo = self._entered.stack.pop()
        if undo is not None:
            undo()


def _make(
    source: str, target: str | torch.device, devices: int, policy: str, callers: Callers, log: Log | None
) -> Scope | None:
    chosen = Policy(policy)
    found = resolve(source, target, devices)
    return None if found is None else Scope(found, chosen, callers, log)


def enter(scope: Scope) -> Callable[[], None]:
    """Enters ``scope`` in this thread; the result leaves it, in the thread that entered."""
    with _LOCK:
        if not ACTIVE:
            patching.apply()
        ACTIVE.append(scope)
    part = join(scope)
    default = default_device()

    def leave() -> None:
        if default_device() != default:
            torch.set_default_device(default)
        part()
        scope.active = False
        with _LOCK:
            ACTIVE.remove(scope)
            if not ACTIVE:
                patching.restore()

    return leave


def join(scope: Scope) -> Callable[[], None]:
    """Makes ``scope`` this thread's own (one that another thread entered, too); the result undoes it."""
    mode = RedirectMode(scope)
    own_scopes().append(scope)
    mode.__enter__()

    def part() -> None:
        mode.__exit__(None, None, None)
        own_scopes().remove(scope)

    return part
