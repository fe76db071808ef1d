"""What all commands have in common: ``--json``, errors as one clear message, exit codes, interruption."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from ..errors import OptestError
from .output import print_json

OK = 0
FAILURES = 1
"""The command ran, and what it looked at is not in order."""
ENVIRONMENT = 3
INTERRUPTED = 130

Callback = Callable[..., int]
"""A command's function: it prints, and returns the exit code."""


class _Command(click.Command):
    """A command whose OptestErrors become a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OptestError as error:
            if ctx.find_root().params.get("traceback"):
                traceback.print_exception(error)
            if ctx.params.get("as_json"):
                described = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
                print_json({"error": described})
            else:
                click.echo(f"{ctx.command_path}: {error}", err=True)
            return error.exit_code


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


def command(name: str) -> Callable[[Callback], click.Command]:
    """Make a function a command; its docstring is the help text. Adds ``--json`` as ``as_json``."""

    def decorate(function: Callback) -> click.Command:
        made = click.command(name, cls=_Command)(function)
        made.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")
        )
        return made

    return decorate


def load_plugins(as_json: bool) -> list[dict[str, str]]:
    """Run ``bootstrap``; failed plugins are told on stderr and returned for JSON."""
    from ..plugins import bootstrap

    failed = [one for one in bootstrap() if not one.loaded]
    for one in failed:
        if not as_json:
            click.echo(f"optest: {one.text()}; going on without it", err=True)
    return [{"name": one.name, "source": one.source, "error": one.error} for one in failed]
