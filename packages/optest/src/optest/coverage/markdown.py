"""Text from results as Markdown that means nothing else."""

from __future__ import annotations

import html
import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def escaped(text: str) -> str:
    """``text`` on one line, with everything that Markdown or HTML would read escaped."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def table_row(*cells: str) -> str:
    """One row of a table; the cells are escaped."""
    return f"| {' | '.join(escaped(one) for one in cells)} |"
