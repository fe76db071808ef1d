"""The console entry: the group of commands."""

from __future__ import annotations

import click

from optest.console import Group

from .._version import __version__
from .bisect import bisect
from .checkpoint import checkpoint
from .demo import demo
from .diff import diff
from .doctor import doctor
from .explain import explain
from .export import export
from .faults import faults
from .gaps import gaps
from .ops import ops
from .parity import parity
from .profile import profile
from .redirect import redirect
from .run import run
from .verify import verify

_MODELS = """\b
MODEL is one of
  package.module:factory
  path/to/file.py:factory
  mlp, cnn, resnet18, bert, gpt2, vit
A factory takes no arguments and returns (model, args) or (model, args, kwargs).

\b
Exit codes: 0 ok, 1 failures found, 2 usage, 3 environment, 130 interrupted."""


@click.group(
    "torchstone", cls=Group, epilog=_MODELS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--traceback", is_flag=True, envvar="TORCHSTONE_TRACEBACK", help="Show the traceback of an error too."
)
@click.version_option(__version__, prog_name="torchstone")
def cli(traceback: bool) -> None:
    """PyTorch on any accelerator that has a PJRT plugin, through StableHLO."""


for _command in (
    demo,
    doctor,
    export,
    diff,
    run,
    verify,
    bisect,
    parity,
    profile,
    ops,
    explain,
    checkpoint,
    redirect,
    gaps,
    faults,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command ``torchstone``; its console entry point."""
    cli.main(prog_name="torchstone")
