"""``torchstone checkpoint``."""

from __future__ import annotations

from pathlib import Path

import click

from optest.console import FAILURES, OK, Group, echo, print_json, print_table

from .command import command
from .output import progress


@click.group("checkpoint", cls=Group)
def checkpoint() -> None:
    """Inspect checkpoints, also those of torch.save and torch.distributed.checkpoint."""


_PATH = click.argument("path", type=click.Path(exists=True, path_type=Path))


@command("show")
@_PATH
def show(path: Path, as_json: bool) -> int:
    """Show what the checkpoint at PATH holds."""
    with progress() as stage:
        stage("reading the checkpoint")
        from ..checkpoint.inspection import describe

        found = describe(path)
    if as_json:
        print_json(found.to_dict())
        return OK
    echo(f"{found.path}: {found.kind} {found.format}".rstrip())
    step = "not known" if found.step is None else str(found.step)
    echo(f"step {step}" + (f", saved {found.created}" if found.created else ""))
    print_table(
        ("section", "tensors", "bytes"), [(one.name, one.tensors, f"{one.bytes:,}") for one in found.sections]
    )
    if found.metadata:
        print_table(("metadata", "value"), list(found.metadata.items()))
    return OK


@command("verify")
@_PATH
def verify(path: Path, as_json: bool) -> int:
    """Check everything in the checkpoint at PATH against its checksums.

    Exits with 1 if anything is damaged.
    """
    with progress() as stage:
        stage("reading the checkpoint")
        from ..checkpoint.inspection import problems

        found = problems(path)
    if as_json:
        print_json({"path": str(path), "intact": not found, "problems": found})
    else:
        for problem in found:
            echo(problem)
        echo("intact" if not found else f"{len(found)} section(s) damaged")
    return FAILURES if found else OK


for _command in (show, verify):
    checkpoint.add_command(_command)
