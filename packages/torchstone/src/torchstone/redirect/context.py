"""Entering and leaving a redirection: :class:`redirected`.

Patches apply to the whole process and scopes are counted: the first scope puts the patches in place and the
last one takes them out. The mode belongs to one thread. Threads that are started inside a scope enter it, too
(``areas/threads.py``). Decorated functions run in a scope of their own; :mod:`.steps` says how generators and
coroutines do so.
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
    """A context manager that runs code written for ``source`` on ``target``, and leaves no trace behind.

    ``target``: ``auto`` (an available accelerator, else ``cpu``), a device type with an optional index,
    or a :class:`torch.device`. With ``auto``, the setting ``redirect`` can name the target.
    ``policy``: whether a call that has no meaning on the target raises (``strict``), warns once (``warn``) or
    is silent (``quiet``).
    ``devices``: the number of CUDA devices that the ``cpu`` target stands for.
    ``trust``: packages that are to be told that CUDA is available, or a mapping from package to yes or no.
    ``log`` is called with an :class:`~.recorder.Event` for each redirected call.

    A default device that is set inside with ``torch.set_default_device`` ends with the scope.

    A decorated generator is inside the scope while it computes a value, not while its caller uses the value.

    Entering returns the :class:`~.scope.Scope`, or None if nothing is redirected (there is a real CUDA device
    and no other target was requested, or the setting is ``redirect=off``). The same object can be nested,
    entered again, shared by threads and used as a decorator. Entering raises
    :class:`~torchstone.errors.RedirectError` for an unknown source or policy, and
    :class:`~torchstone.errors.RedirectTargetError` for an unknown or absent target.
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
        """Return ``function`` wrapped so that each call runs in a scope of its own."""
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
    """Run the block inside ``scope``, which can be entered repeatedly; None runs the block unchanged."""
    undo = enter(scope) if scope is not None else None
    try:
        yield
    finally:
        if undo is not None:
            undo()


def enter(scope: Scope) -> Callable[[], None]:
    """Enter ``scope`` in this thread; return the function that leaves it, to be called in the same thread."""
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
