"""Progress on the terminal, and files that are written completely or not at all."""

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
    """Yield a function to call with each stage; it shows the stage if stderr is a terminal, else nothing."""
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
    """Raise a usage error if one of the named options would write to stdout, where the report goes."""
    for name, path in options.items():
        if path is not None and is_stdout(path):
            raise click.UsageError(f"--{name} is for a file: stdout has the report")


def data_on(path: Path) -> AbstractContextManager[None]:
    """Keep other code's output, inside the block, out of the data that is written to ``path``."""
    return stdout_for_data() if is_stdout(path) else nullcontext()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; ``-`` is stdout. Raises a usage error if that fails."""
    if is_stdout(path):
        write_data(content)
        return
    try:
        with NewFile(path) as new:
            new.file.write(content)
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from error
