"""Explains why a size cannot be dynamic: what the model assumes about it, and at which line.

``torch.export`` only says which dimensions broke their promise. Which code broke it is known while
``torch.export`` traces: :class:`Sizes` records each assumption with the user's line.
"""

from __future__ import annotations

import linecache
import re
import sys
from textwrap import shorten
from types import CodeType, FrameType

from ..errors import CaptureError
from ..torch_internals.symbols import Assumption, Watch
from .graphs import is_users_file

_MOST = 8
"""The most assumptions that an error message lists."""
_LONGEST_LINE = 100
_BROKEN = ("Constraints violated", "Expected op to be '=='")
"""What PyTorch says if sizes do not fit; the second text, if it fails to suggest better sizes."""
_SUGGESTED = re.compile(r"Suggested fixes:\n((?: +.+\n?)+)")
_HINT = "leave the dimension out of dynamic_shapes=, change its range, or remove what needs these sizes"


class Sizes:
    """A record of what tracing assumes about dynamic sizes, and at which line of the user's code.

    A line is looked for in the calls that a frame of ``outermost`` makes.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self._watch = Watch(self._place)
        self.patches = self._watch.patches

    def _place(self) -> tuple[str, int] | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._outermost:
            if is_users_file(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None

    def error(self, name: str, error: Exception) -> CaptureError | None:
        """Return ``error``, from tracing the model ``name``, in the user's terms; None if not about sizes."""
        if not any(part in str(error) for part in _BROKEN):
            return None
        told = list(dict.fromkeys(_told(one) for one in self._watch.assumed() if one.place is not None))
        told = told or [_in_names(one) for one in _GUARD.findall(str(error))]
        if not told:
            return None
        more = [f"and {len(told) - _MOST} more"] if len(told) > _MOST else []
        suggested = _SUGGESTED.search(str(error))
        advice = f"; PyTorch suggests {_in_one_line(suggested[1])}" if suggested else ""
        lines = "\n".join(f"  {line}" for line in (*told[:_MOST], *more))
        return CaptureError(
            f"{name} does not take every size that dynamic_shapes= allows. It needs:\n{lines}",
            hint=f"{_HINT}{advice}",
        )


def unknown_expression(error: Exception) -> str | None:
    """Return the condition on values, such as ``Eq(u0, 1)``, that PyTorch could not decide; None if none."""
    found = _UNKNOWN.search(str(error))
    return None if found is None else found[1]


def suggested_checks(error: Exception) -> list[str]:
    """Return the checks that PyTorch suggests for such a condition: ``torch._check(x.shape[0] != 0)``."""
    return _CHECK.findall(str(error))


_GUARD = re.compile(r"satisfy the generated guard (.+?)\.?$", re.MULTILINE)
"""A guard that comes from no line of the user's code, such as one on the memory layout of results."""
_CHECK = re.compile(r"^\s*\d+\. (torch\._check\(.+\))\s*$", re.MULTILINE)
_UNKNOWN = re.compile(r"data-dependent expression (.+?)(?: \(unhinted|\n|$)")


def _told(assumption: Assumption) -> str:
    assert assumption.place is not None
    file, line = assumption.place
    condition = assumption.condition
    named = []
    for name, source in assumption.sources.items():
        dimension = _dimension(source)
        if name == source:
            condition = condition.replace(name, dimension)
        else:
            named.append(f"{name} is {dimension}")
    where = f" ({', '.join(named)})" if named else ""
    code = shorten(linecache.getline(file, line), _LONGEST_LINE)
    return f"{condition}{where} at {file}:{line}{f': {code}' if code else ''}"


def _dimension(source: str) -> str:
    """Return ``L['args'][0].size()[1]`` as ``input 0.shape[1]``, and ``L['x']…`` as ``x…``."""
    source = re.sub(r"^L\['args'\]\[(\d+)\]", r"input \1", source)
    source = re.sub(r"^L\['kwargs'\]\['(\w+)'\]", r"\1", source)
    source = re.sub(r"^L\['(\w+)'\]", r"\1", source)
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", source)


def _in_names(condition: str) -> str:
    return re.sub(r"L\['\w+'\](?:\[[^\]]+\])*\.size\(\)\[\d+\]", lambda one: _dimension(one[0]), condition)


def _in_one_line(text: str) -> str:
    return ", ".join(line.strip() for line in text.splitlines() if line.strip())
