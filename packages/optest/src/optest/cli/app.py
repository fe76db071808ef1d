"""The group of commands."""

from __future__ import annotations

import click

from .._version import __version__
from ..console import Group
from .coverage import attest, coverage, stage
from .dashboard import dashboard
from .faults import faults
from .inspect import backends, list_operators, schema, show
from .plan import plan
from .replay import replay
from .results import diff, history, merge
from .run import run
from .serve import publish, serve

_EPILOG = """\b
Exit codes: 0 ok, 1 failures found, 2 usage, 3 environment, 130 interrupted."""


@click.group("optest", cls=Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--traceback", is_flag=True, envvar="OPTEST_TRACEBACK", help="Show tracebacks of errors too.")
@click.version_option(__version__, prog_name="optest")
def cli(traceback: bool) -> None:
    """Operator conformance for any backend."""


_COMMANDS = (
    run, list_operators, show, plan, replay, backends, schema, merge, diff, history, faults,
    coverage, stage, attest, dashboard, serve, publish,
)  # fmt: skip
for _command in _COMMANDS:
    cli.add_command(_command)
