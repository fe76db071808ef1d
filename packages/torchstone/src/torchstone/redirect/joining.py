"""Making the running thread enter an open scope, and the scope's mode with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ..torch_internals import dispatch
from .mode import RedirectMode
from .scope import Scope, pop, push, scope_of_mode


def join(scope: Scope) -> Callable[[], None]:
    """Make this thread enter ``scope``, which any thread may have opened; return a function to undo it."""
    mode = RedirectMode(scope)
    push(scope)
    mode.__enter__()

    def part() -> None:
        dispatch.leave_function_mode(mode)
        pop(scope)

    return part


@contextlib.contextmanager
def inside_mode(scope: Scope | None) -> Iterator[None]:
    """Enter the mode of ``scope`` again if PyTorch has left it before calling user code."""
    if scope is None:
        yield
        return
    with dispatch.with_function_modes():  # compiled code runs without them
        if scope_of_mode() is scope:
            yield
        else:
            with RedirectMode(scope):
                yield
