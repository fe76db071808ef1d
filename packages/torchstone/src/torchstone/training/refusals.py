"""What ends the trace of a step: a look at a value, a result as large as values say, an error of its code."""

from __future__ import annotations

import linecache
from textwrap import shorten
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Any

from ..compiler.graphs import is_users_file
from ..errors import CaptureError

_LONGEST_LINE = 100
_ELSEWHERE = (
    "compile the model with torch.compile(model, backend='torchstone'), and call loss.backward() and "
    "optimizer.step() in eager PyTorch"
)


class LooksAtValue(Exception):
    """Code of a step looks at a value that is known only when the step runs."""


class SizedByValues(Exception):
    """The result of ``operator`` in a step is as large as values say that are known only when it runs."""

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.operator = operator


def refusal(error: Exception, outermost: CodeType) -> CaptureError:
    """``error`` of a step's code in the user's words, with the line; ``outermost`` calls that code."""
    place = _users_line(error.__traceback__, outermost)
    if isinstance(error, LooksAtValue):
        return CaptureError(
            f"code of the step looks at the value of a tensor while the step is traced{_with_code(place)}",
            hint="compute with tensors: torch.where in place of if, torch.maximum in place of max; "
            f"or {_ELSEWHERE}",
        )
    if isinstance(error, SizedByValues):
        return CaptureError(
            f"the result of {error.operator} is as large as values say, which are not known "
            f"while the step is traced{_with_code(place)}",
            hint="compute with a mask (torch.where, masked_fill) in place of selecting elements; "
            f"or {_ELSEWHERE}",
        )
    where = "" if place is None else f" at {place[0]}:{place[1]}"
    return CaptureError(
        f"the step cannot be traced{where}: {type(error).__name__}: {error}",
        hint=f"run it in eager PyTorch with the same batch first; if that works, {_ELSEWHERE}",
    )


def _users_line(trace: TracebackType | None, outermost: CodeType) -> tuple[str, int] | None:
    """File and line of the innermost frame of the user's code inside of ``outermost``."""
    found, inside = None, False
    for frame, line in walk_tb(trace):
        inside |= frame.f_code is outermost
        if inside and is_users_file(frame.f_code.co_filename):
            found = frame.f_code.co_filename, line
    return found


def _with_code(place: tuple[str, int] | None) -> str:
    if place is None:
        return ""
    code = shorten(linecache.getline(*place), _LONGEST_LINE)
    return f", at {place[0]}:{place[1]}{f': {code}' if code else ''}"
