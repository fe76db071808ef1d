"""Ctrl-C, told apart from a ``KeyboardInterrupt`` that somebody's code raises by itself.

Code of others (references, generators, drivers) may raise anything. All of it is the result of
a case; Ctrl-C alone ends a run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_presses: list[int] | None = None
"""The signals that came while a run watches for them; None while nobody watches."""
_deferred = False


@contextmanager
def watched() -> Iterator[None]:
    """While this is open, :func:`is_ctrl_c` knows whether Ctrl-C was pressed.

    Where the process handles the signal in its own way, or outside the main thread, nothing is changed.
    """
    global _presses
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _presses = []
    signal.signal(signal.SIGINT, _pressed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _presses = None


@contextmanager
def deferred() -> Iterator[None]:
    """A watched Ctrl-C waits for the end of this block, so that what the block does is whole.

    A second one does not wait.
    """
    global _deferred
    if _presses is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = len(_presses)
    _deferred = True
    try:
        yield
    finally:
        _deferred = False
    if len(_presses) > before:
        raise KeyboardInterrupt


def _pressed(number: int, frame: FrameType | None) -> None:
    if _presses is not None:
        _presses.append(number)
        if _deferred and len(_presses) == 1:
            return
    raise KeyboardInterrupt


def is_ctrl_c(error: BaseException) -> bool:
    """Whether ``error`` comes from the keyboard; where that cannot be known, whether it may."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    if _presses is not None:
        return bool(_presses)
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # worker processes ignore it
