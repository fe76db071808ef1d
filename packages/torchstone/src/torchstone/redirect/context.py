"""Entering and leaving a redirection: :class:`redirected`.

Patches are the process's and are counted: the first scope puts them in place, the last one takes them out.
The mode is each thread's own. Threads that are started inside a scope enter it (``areas/threads.py``).
Decorated functions run in a scope of their own; generators and coroutines do so step by step (:mod:`.steps`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch

from ..torch_internals.devices import default_device
from . import patching, steps
from .callers import Callers
from .choice import resolve
from .joining import join
from .policy import Policy
from .recorder import Log
from .scope import ACTIVE, Scope, current_scope

_LOCK = threading.RLock()


class redirected:
    """Runs what is inside on ``target`` where it says ``source``; leaves no trace behind.

    ``target``: ``auto`` (an accelerator that is here, else ``cpu``), a device type with an optional index,
    or a :class:`torch.device`; with ``auto``, the setting ``redirect`` may name it. ``policy``: what has
    no meaning on the target raises (``strict``), warns once (``warn``) or is silent (``quiet``).
    ``devices``: how many CUDA devices the ``cpu`` target stands for.
    ``trust``: packages that are to be told that CUDA is here, or a mapping from package to yes or no.
    ``log`` is called with an :class:`~.recorder.Event` for each redirected call.

    A default device that is set inside with ``torch.set_default_device`` ends with the scope.

    A decorated generator is inside while it computes a value, not while its caller uses the value.

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

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` in a scope of its own for each call."""
        return steps.wrapped(function, lambda: functools.partial(inside, self._make()))

    def __enter__(self) -> Scope | None:
        scope = self._make()
        if not hasattr(self._entered, "stack"):
            self._entered.stack = []
        self._entered.stack.append((scope, enter(scope) if scope is not None else None))
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        entered, own = self._entered.stack, current_scope()
        ours = [index for index, (scope, _) in enumerate(entered) if scope is own]
        _, undo = entered.pop(ours[-1] if ours else -1)  # another task may have entered since
        if undo is not None:
            undo()


def _make(
    source: str, target: str | torch.device, devices: int, policy: str, callers: Callers, log: Log | None
) -> Scope | None:
    chosen = Policy(policy)
    found = resolve(source, target, devices)
    return None if found is None else Scope(found, chosen, callers, log)


@contextmanager
def inside(scope: Scope | None) -> Iterator[None]:
    """Runs the block in ``scope``, which may be entered again and again; None: as it is."""
    undo = enter(scope) if scope is not None else None
    try:
        yield
    finally:
        if undo is not None:
            undo()


def enter(scope: Scope) -> Callable[[], None]:
    """Enters ``scope`` in this thread; the result leaves it, in the thread that entered."""
    with _LOCK:
        if not ACTIVE:
            patching.apply()
        ACTIVE.append(scope)
    scope.active = True
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
