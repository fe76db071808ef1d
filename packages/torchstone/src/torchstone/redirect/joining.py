"""How the running thread gets inside a scope that is open: its mode is entered, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ..torch_internals import dispatch
from .mode import RedirectMode
from .scope import Scope, pop, push, scope_of_mode


def join(scope: Scope) -> Callable[[], None]:
    """Makes ``scope`` this thread's own (one that another thread entered, too); the result undoes it."""
    mode = RedirectMode(scope)
    push(scope)
    mode.__enter__()

    def part() -> None:
        dispatch.leave_function_mode(mode)
        pop(scope)

    return part


@contextlib.contextmanager
def inside_mode(scope: Scope | None) -> Iterator[None]:
    """Enters the mode again where PyTorch has left it before it calls user code."""
    if scope is None:
        yield
        return
    with dispatch.with_function_modes():  # compiled code runs without them
        if scope_of_mode() is scope:
            yield
        else:
            with RedirectMode(scope):
                yield
