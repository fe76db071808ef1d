"""Docstrings for the API reference: roles such as ``:class:`Value``` become plain code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?\.?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")


class Roles(Extension):
    """Rewrites each docstring once, when its object is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", obj.docstring.value)
            obj.docstring.value = _LITERAL.sub(r"`\1`", text)
