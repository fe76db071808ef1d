"""Telling Ctrl-C from a ``KeyboardInterrupt`` that other code raises by itself.

Code that is not optest's (references, generators, drivers) may raise anything. Any such exception is the
result of a case; only Ctrl-C ends a run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_presses: list[int] | None = None
"""The signals that have arrived while a run watches for them; None while no run does."""
_deferred = False


@contextmanager
def watched() -> Iterator[None]:
    """Watch for Ctrl-C during the block, so that :func:`is_ctrl_c` knows whether it was pressed.

    If the process has its own handler for the signal, or outside the main thread, nothing is changed.
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
    """Delay a watched Ctrl-C until the end of the block, so that the block is not interrupted halfway.

    A second Ctrl-C is not delayed.
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
    """Whether ``error`` comes from Ctrl-C or, if that cannot be known, whether it may."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    if _presses is not None:
        return bool(_presses)
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # worker processes ignore it
