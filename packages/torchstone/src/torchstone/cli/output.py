"""Progress and whole files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click

from optest.console import stdout_for_data, write_data
from optest.files import NewFile


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function to be told each stage; it shows the present one on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(stage)


def is_stdout(path: Path) -> bool:
    """Whether ``path`` stands for stdout."""
    return str(path) in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def require_files(**options: Path | None) -> None:
    """Raise a usage error where an option, given by its name, would write to stdout, which has the report."""
    for name, path in options.items():
        if path is not None and is_stdout(path):
            raise click.UsageError(f"--{name} is for a file: stdout has the report")


def data_on(path: Path) -> AbstractContextManager[None]:
    """Inside, what other code prints does not get into the data that is written to ``path``."""
    return stdout_for_data() if is_stdout(path) else nullcontext()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; ``-`` is stdout. Raises a usage error where it cannot be written."""
    if is_stdout(path):
        write_data(content)
        return
    try:
        with NewFile(path) as new:
            new.file.write(content)
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from error
