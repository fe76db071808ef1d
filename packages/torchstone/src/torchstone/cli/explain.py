"""``torchstone explain``."""

from __future__ import annotations

import click

from optest.console import FAILURES, OK, echo, print_json

from .command import MODEL, command
from .output import progress


@command("explain")
@MODEL
@click.option(
    "--passes",
    "trace",
    is_flag=True,
    help="First print each compiler pass: its time, what it needs and guarantees, and the graph it leaves.",
)
def explain(model: str, trace: bool, as_json: bool) -> int:
    """Report which parts of MODEL compile and which do not, where, and why.

    Exits with 1 if any part does not compile.
    """
    with progress() as stage:
        stage("loading the model")
        from ..api import explain as explain_model
        from ..parity.model import load_model

        loaded = load_model(model)
        stage("tracing the model")
        found = explain_model(loaded.model, loaded.args, loaded.kwargs, trace=trace)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
    return OK if found.compiles else FAILURES
