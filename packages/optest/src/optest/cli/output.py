"""Tables and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

_WIDTH_OF_A_FILE = 10_000
"""Columns for a table that is not printed on a terminal: no row is broken, so that grep finds it whole."""


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout; cells are plain text, in which rich's markup means nothing."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE).print(shown)
