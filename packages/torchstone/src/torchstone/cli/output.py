"""Tables, JSON, progress and whole files: the only module that writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..files import replacing

_WIDTH_OF_A_FILE = 10_000
"""Columns for a table that is not printed on a terminal: no row is broken, so that grep finds it whole."""


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table on stdout; cells are plain text, in which rich's markup means nothing."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE).print(shown)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function to be told each stage; it shows the present one on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(stage)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; ``-`` is stdout. Raises a usage error where it cannot be written."""
    if str(path) == "-":
        click.echo(content, nl=False)
        return
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from error
