"""Errors that end a trace: a look at a value, a size that depends on values, an error of the step's code."""

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


class Refused(Exception):
    """Code of a step does ``what``, which its trace does not allow; ``hint`` says what to do instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class LooksAtValue(Refused):
    """Code of a step looks at a value that is known only when the step runs."""

    def __init__(self) -> None:
        super().__init__(
            "code of the step looks at the value of a tensor while the step is traced",
            "compute with tensors: torch.where in place of if, torch.maximum in place of max; "
            f"or {_ELSEWHERE}",
        )


class SizedByValues(Refused):
    """The size of the result of ``operator`` depends on values that are known only when the step runs."""

    def __init__(self, operator: Any) -> None:
        super().__init__(
            f"the size of the result of {operator} depends on values, which are not known while the step is "
            "traced",
            f"compute with a mask (torch.where, masked_fill) in place of selecting elements; or {_ELSEWHERE}",
        )


class HigherOrder(Refused):
    """Code of a step calls an operator that takes functions."""

    def __init__(self, operator: Any) -> None:
        super().__init__(
            f"code of the step calls {operator}, and a step has no operators that take functions",
            f"compute both sides of a condition (torch.where), and write loops in Python; or {_ELSEWHERE}",
        )


def refusal(error: Exception, outermost: CodeType) -> CaptureError:
    """Turn an ``error`` of a step's code into one for users, with the line; ``outermost`` calls that code."""
    place = _users_line(error.__traceback__, outermost)
    where = "" if place is None else f"{place[0]}:{place[1]}"
    if isinstance(error, Refused):
        code = "" if place is None else shorten(linecache.getline(*place), _LONGEST_LINE)
        what = f"{error.what}, at {where}" if where else error.what
        return CaptureError(f"{what}: {code}" if code else what, hint=error.hint)
    return CaptureError(
        f"the step cannot be traced{where and f' at {where}'}: {type(error).__name__}: {error}",
        hint=f"run it in eager PyTorch with the same batch first; if that works, {_ELSEWHERE}",
    )


def _users_line(trace: TracebackType | None, outermost: CodeType) -> tuple[str, int] | None:
    """Return the file and line of the innermost frame of the user's code inside ``outermost``, if any."""
    found, inside = None, False
    for frame, line in walk_tb(trace):
        file = frame.f_code.co_filename
        inside |= frame.f_code is outermost
        if (
            inside and is_users_file(file) and linecache.getline(file, line)
        ):  # PyTorch's own code may be a string
            found = file, line
    return found
