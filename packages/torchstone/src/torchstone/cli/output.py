"""Progress and whole files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..files import replacing


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
