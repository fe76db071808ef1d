"""Helpers that format the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WRITTEN = "<!-- Written by `make docs` from the code: edit that. -->\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a ``|`` inside a cell is escaped."""
    lines = [header, ["---"] * len(header)]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)
