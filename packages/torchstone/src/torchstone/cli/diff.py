"""``torchstone diff``."""

from __future__ import annotations

from pathlib import Path

import click

from optest.console import FAILURES, OK, echo, print_json

from .command import command

_ARTIFACT = click.Path(exists=True, dir_okay=False, path_type=Path)


@command("diff")
@click.argument("first", type=_ARTIFACT)
@click.argument("second", type=_ARTIFACT)
def diff(first: Path, second: Path, as_json: bool) -> int:
    """Show how two artifacts differ: signature, weights, and operations of the module.

    Exits with 1 if they differ.
    """
    from ..artifact import load_artifact
    from ..parity.artifact_difference import differences

    found = differences(load_artifact(first), load_artifact(second))
    if as_json:
        print_json({"equal": not found, "differences": [one.to_dict() for one in found]})
    else:
        echo("\n".join(map(str, found)) if found else f"{first} and {second} mean the same")
    return FAILURES if found else OK
