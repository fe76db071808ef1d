"""Warnings from PyTorch's C++ code: they name the line of the redirected code, not a line of Torchstone.

C++ code attributes a warning to the innermost Python line. If a call goes through the mode, that line is in
Torchstone. Such a warning is issued again for the line that made the call, so that filters and tools see it
there.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from ..rows import Row
from ..scope import current_scope

_OURS = (str(Path(__file__).parents[1]), "<redirected ")


def _moved(show: Callable[[warnings.WarningMessage], None]) -> Callable[[warnings.WarningMessage], None]:
    @functools.wraps(show)
    def _showwarnmsg(msg: warnings.WarningMessage) -> None:
        caller = _caller() if current_scope() is not None and msg.filename.startswith(_OURS) else None
        if caller is None:
            show(msg)
            return
        space, text = caller.f_globals, str(msg.message)
        if (text, msg.category) in getattr(warnings, "onceregistry", ()):
            msg.filename, msg.lineno = caller.f_code.co_filename, caller.f_lineno
            show(msg)
            return
        warnings.warn_explicit(
            msg.message,
            msg.category,
            caller.f_code.co_filename,
            caller.f_lineno,
            module=space.get("__name__"),
            registry=space.setdefault("__warningregistry__", {}),
            source=msg.source,
        )

    return _showwarnmsg


def _caller() -> FrameType | None:
    """Return the innermost frame outside the redirection; clear the warning registries of inner ones."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame.f_globals.pop("__warningregistry__", None)
        frame = frame.f_back
    return frame


ROWS = (
    Row(
        "warnings._showwarnmsg",
        "wraps",
        "warnings from C++ name the line of the redirected code",
        replacement=_moved,
        optional=True,
    ),
)
