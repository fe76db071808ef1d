"""Writes text from results as Markdown, with all special characters escaped."""

from __future__ import annotations

import html
import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def escaped(text: str) -> str:
    """Return ``text`` on one line, with the syntax of Markdown and HTML escaped."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def table_row(*cells: str) -> str:
    """Return one row of a table with its cells escaped."""
    return f"| {' | '.join(escaped(one) for one in cells)} |"
