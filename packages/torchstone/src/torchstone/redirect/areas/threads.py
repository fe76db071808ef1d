"""Threads: a thread that is started inside a scope enters it, too."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from ..joining import join
from ..rows import Row
from ..scope import Scope


def _around_start(start: Callable[[threading.Thread], None]) -> Callable[[Scope, threading.Thread], None]:
    def implementation(scope: Scope, self: threading.Thread) -> None:
        self.run = functools.partial(_run_inside, scope, self.run)  # type: ignore[method-assign]
        start(self)

    return implementation


def _run_inside(scope: Scope, run: Callable[[], Any]) -> None:
    if not scope.active:
        return run()
    part = join(scope)
    try:
        run()
    finally:
        part()


ROWS = (Row("threading.Thread.start", "wraps", "the thread enters the scope", around=_around_start),)
