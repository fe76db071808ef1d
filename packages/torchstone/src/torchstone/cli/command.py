"""What all commands have in common: ``--json``, errors as one clear message, exit codes, interruption."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from ..errors import TorchstoneError
from .exits import INTERRUPTED, OK, code_of
from .output import print_json

Callback = Callable[..., int]
"""A command's function: it prints, and returns the exit code."""


class _Command(click.Command):
    """A command whose TorchstoneErrors become a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TorchstoneError as error:
            if ctx.find_root().params.get("traceback"):
                traceback.print_exception(error)
            if ctx.params.get("as_json"):
                described = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
                print_json({"error": described})
            else:
                click.echo(f"torchstone {ctx.info_name}: {error}", err=True)
            return code_of(error)


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


MODEL = click.argument("model", metavar="MODEL")
"""``package.module:factory``, ``file.py:factory`` or a name of the zoo."""


def placed(function: Callback) -> Callback:
    """Adds ``--device`` and ``--engine``, which stand for the settings of the same names."""
    for name, help_text in (
        ("engine", "pjrt or reference."),
        ("device", "cpu, cuda:1, a plugin's platform, …"),
    ):
        function = click.option(f"--{name}", help=f"{help_text}  [default: TORCHSTONE_{name.upper()}]")(
            function
        )
    return function


def settings(**given: str | None) -> Any:
    """The settings that options gave, in force inside a ``with`` block."""
    from ..config import override

    return override(**{name: value for name, value in given.items() if value is not None})
