"""``torchstone redirect``: ``run`` and ``explain``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from optest.console import OK, echo, print_json

from ..redirect.options import LIMIT, LOG_LEVELS, Options
from ..redirect.policy import POLICIES
from .command import command

_PASSED_ON = {"allow_interspersed_args": False}
"""Options after the script are passed on to the script."""


@click.group("redirect")
def redirect() -> None:
    """Run code written for CUDA on another device, and report what happens to each use of CUDA.

    \b
    torchstone redirect run train.py --lr 0.1
    torchstone redirect run --target mps -m package.train
    torchstone redirect explain train.py -- --lr 0.1
    """


def _program(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for where and how redirected code runs, and the arguments SCRIPT and ARGUMENTS."""
    for decorate in (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.argument("script"),
        click.option(
            "-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as in python -m."
        ),
        click.option(
            "--policy",
            type=click.Choice(POLICIES),
            default=Options.policy,
            show_default=True,
            help="What has no meaning on the target raises, warns once for each name, or is silent.",
        ),
        click.option(
            "--devices",
            type=click.IntRange(1, LIMIT),
            default=Options.devices,
            show_default=True,
            help="How many CUDA devices the cpu target stands for.",
        ),
        click.option(
            "--target",
            "--device",
            "target",
            default=Options.target,
            show_default=True,
            help="cpu, mps, xpu, pjrt or a registered backend's name, with an optional :index; "
            "auto takes TORCHSTONE_REDIRECT, or else an accelerator that is here, or else cpu.",
        ),
    ):
        function = decorate(function)
    return function


@command("run", with_json=False, context_settings=_PASSED_ON)
@_program
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default=Options.log_level,
    show_default=True,
    help="Write redirected calls to stderr: info each place once, debug every call.",
)
def run(script: str, arguments: tuple[str, ...], is_module: bool, **options: Any) -> int:
    """Run SCRIPT with its arguments as if it ran on CUDA.

    The exit code and the traceback are the script's own. Child processes
    are redirected too. On a machine with a CUDA device nothing changes unless
    --target or TORCHSTONE_REDIRECT says so; TORCHSTONE_REDIRECT=off switches
    the redirection off.
    """
    from ..redirect.launch import Program, main

    return main(Program(script, is_module), arguments, Options(**options))


@command("explain")
@_program
@click.option("--no-run", is_flag=True, help="Only read the source; nothing is run.")
def explain(
    script: str,
    arguments: tuple[str, ...],
    is_module: bool,
    no_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Report what happens to each CUDA-only line of SCRIPT, and what stays CUDA-only.

    The source is scanned, then the script is run with its arguments (after a
    double dash, if they are options). The script's output goes to stderr. Exits with the
    script's own exit code.
    """
    from ..redirect.explain import explain as explain_script
    from ..redirect.launch import Program

    found = explain_script(Program(script, is_module), arguments, Options(**options), run=not no_run)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
    return found.exit_code or OK


for _command in (run, explain):
    redirect.add_command(_command)
