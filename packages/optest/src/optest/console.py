"""What all commands have in common: exit codes, ``--json``, tables, one clear message per error.

Both ``optest`` and ``torchstone`` build their commands here; what a command does belongs
to its own package, and this module knows of neither's errors.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import click

OK = 0
FAILURES = 1
"""The command ran, and what it looked at is not in order."""
USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130

Callback = Callable[..., int]
"""A command's function: it prints, and returns the exit code."""

WIDTH_OF_A_FILE = 10_000
"""Columns for a table that is not printed on a terminal: no row is broken, so that grep finds it whole."""


class Group(click.Group):
    """The commands; the process exits with what the command returned."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(Group, self).main(args, prog_name, complete_var, False, **extra)

        if not standalone_mode:
            return run()
        try:
            code = run()
        except click.Abort:
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except BrokenPipeError:  # the reader has seen enough, as with `| head`
            sys.stderr.close()
            code = OK
        sys.exit(code or OK)


class CommandMaker(Protocol):
    """A decorator that makes a function a command; its docstring is the help text.

    It adds ``--json`` as ``as_json``, unless what the command runs writes to stdout itself.
    """

    def __call__(
        self, name: str, *, with_json: bool = True, context_settings: dict[str, Any] | None = None
    ) -> Callable[[Callback], click.Command]: ...


def commands_of(errors: type[Exception], code_of: Callable[[Any], int]) -> CommandMaker:
    """The decorator that makes functions commands of one package.

    ``errors`` is the base of the package's errors, which have a ``message`` and a ``hint``: raised inside
    a command, one becomes a line on stderr (or, with ``--json``, an object) and the exit code ``code_of`` it.
    """

    class Command(click.Command):
        def invoke(self, ctx: click.Context) -> Any:
            try:
                return super().invoke(ctx)
            except errors as error:
                _show(ctx, error)
                return code_of(error)

    def command(
        name: str, *, with_json: bool = True, context_settings: dict[str, Any] | None = None
    ) -> Callable[[Callback], click.Command]:
        def decorate(function: Callback) -> click.Command:
            made = click.command(name, cls=Command, context_settings=context_settings)(function)
            if with_json:
                made.params.append(_json_option())
            return made

        return decorate

    return command


def _json_option() -> click.Option:
    """``--json``, as ``as_json``."""
    return click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")


def _show(ctx: click.Context, error: Any) -> None:
    if ctx.find_root().params.get("traceback"):
        traceback.print_exception(error)
    if ctx.params.get("as_json"):
        described = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
        print_json({"error": described})
    else:
        click.echo(f"{ctx.command_path}: {error}", err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table on stdout; cells are plain text, in which rich's markup means nothing.

    Where the output is a file, no rule is drawn and no line ends in spaces: one long cell would make
    them as long as itself.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    lines = box.SIMPLE_HEAD if terminal else box.Box("    \n" * 8)  # the same places, all of them blank
    shown = Table(title=title, title_justify="left", box=lines, show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    if terminal:
        Console().print(shown)
        return
    console = Console(width=WIDTH_OF_A_FILE)
    with console.capture() as captured:
        console.print(shown)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
