"""``torchstone explain``."""

from __future__ import annotations

from optest.console import FAILURES, OK, echo, print_json

from .command import MODEL, command
from .output import progress


@command("explain")
@MODEL
def explain(model: str, as_json: bool) -> int:
    """Say what of MODEL compiles and what does not, where, and why.

    Exits with 1 if something does not.
    """
    with progress() as stage:
        stage("loading the model")
        from ..api import explain as explain_model
        from ..parity.model import load_model

        loaded = load_model(model)
        stage("tracing the model")
        found = explain_model(loaded.model, loaded.args, loaded.kwargs)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
    return OK if found.compiles else FAILURES
