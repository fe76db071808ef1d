"""Why a dynamic size cannot be dynamic: what the model needs of it, and at which line.

``torch.export`` says which dimensions broke their promise. What made them is known while it traces:
:class:`Sizes` notes each assumption with the user's line.
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
"""Assumptions that an error tells."""
_LONGEST_LINE = 100
_BROKEN = ("Constraints violated", "Expected op to be '=='")
"""What PyTorch says where sizes do not fit; the second where it fails to suggest better ones."""
_SUGGESTED = re.compile(r"Suggested fixes:\n((?: +.+\n?)+)")
_HINT = "leave the dimension out of dynamic_shapes=, change its range, or remove what needs these sizes"


class Sizes:
    """What is assumed of dynamic sizes where a model is traced, in calls inside a frame of ``outermost``."""

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
        """``error`` of the trace of the model ``name`` in the user's words; None if it is about no size."""
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
    """What PyTorch needed to know of a size or number that depends on values, as ``Eq(u0, 1)``; else None."""
    found = _UNKNOWN.search(str(error))
    return None if found is None else found[1]


def suggested_checks(error: Exception) -> list[str]:
    """What PyTorch suggests to say of that size or number, as code: ``torch._check(x.shape[0] != 0)``."""
    return _CHECK.findall(str(error))


_GUARD = re.compile(r"satisfy the generated guard (.+?)\.?$", re.MULTILINE)
"""What no line of the user's code assumes, such as that the memory of results is laid out in another way."""
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
    """``L['args'][0].size()[1]`` as ``input 0.shape[1]``, and ``L['x']…`` as ``x…``."""
    source = re.sub(r"^L\['args'\]\[(\d+)\]", r"input \1", source)
    source = re.sub(r"^L\['kwargs'\]\['(\w+)'\]", r"\1", source)
    source = re.sub(r"^L\['(\w+)'\]", r"\1", source)
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", source)


def _in_names(condition: str) -> str:
    return re.sub(r"L\['\w+'\](?:\[[^\]]+\])*\.size\(\)\[\d+\]", lambda one: _dimension(one[0]), condition)


def _in_one_line(text: str) -> str:
    return ", ".join(line.strip() for line in text.splitlines() if line.strip())
