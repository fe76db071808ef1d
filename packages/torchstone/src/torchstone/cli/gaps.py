"""``torchstone gaps``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optest.console import FAILURES, OK, Group, echo, print_json, print_table

from .command import command
from .output import data_on, progress, write_whole

if TYPE_CHECKING:
    from ..gaps.log import Log

_FILE = click.Path(dir_okay=False, path_type=Path)
_STDOUT = Path("-")
_PROVIDERS = """\b
PROVIDER is one of
  redirect[:DEVICE]       CUDA code redirected to DEVICE (default: cpu)
  compile                 the compile backend's registry of lowerings
  device:NAME             a device of PyTorch's, beside its CPU
  module:OURS=TORCH[,…]   your modules, each beside a namespace of PyTorch's
  patched:PACKAGE         a package that changes PyTorch when it is imported"""


@click.group("gaps", cls=Group, epilog=_PROVIDERS)
def gaps() -> None:
    """Compare PyTorch's public API with a provider that replaces it, and keep the gap log."""


_OUTPUT = click.option(
    "-o", "--output", type=_FILE, default=_STDOUT, help="Where to write (default: stdout)."
)
_NAMESPACES = click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Only this; NAME.* for all modules in it.",
)


def _compared(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that every command with a gap log takes."""
    options = (
        click.option("--provider", default="redirect", show_default=True, help="What is compared."),
        _NAMESPACES,
        click.option(
            "--decisions", type=_FILE, help="Notes and decisions (TOML) in place of the shipped ones."
        ),
        click.option(
            "--usage", type=click.Path(path_type=Path), multiple=True, help="Count uses in this code."
        ),
        click.option(
            "--previous", type=_FILE, help="An earlier log (JSON), for what is new and what is fixed."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _analyze(provider: str, namespaces: tuple[str, ...], **options: Any) -> Log:
    with progress() as stage:
        stage("loading PyTorch")
        from ..gaps.analysis import analyze

        return analyze(provider, namespaces=namespaces, stage=stage, **options)


def _counts(found: Log) -> dict[str, Any]:
    """Return the part of each command's JSON that says how much was compared."""
    return {"provider": found.provider, "names": found.compared_names, "called": found.called}


@command("snapshot")
@_OUTPUT
@_NAMESPACES
@click.option("--all", "everything", is_flag=True, help="Read every public module of PyTorch.")
@click.option("--branches", is_flag=True, help="Add where PyTorch's sources treat CUDA, MPS or CPU apart.")
def _snapshot(
    output: Path, namespaces: tuple[str, ...], everything: bool, branches: bool, as_json: bool
) -> int:
    """Write the installed PyTorch's public API to a file.

    With --json, print counts and write the file if --output names one.
    """
    with progress() as stage:
        stage("reading PyTorch's public names")
        from ..gaps.snapshot import take_snapshot, to_json
        from ..gaps.surface import DEFAULT, WHOLE

        chosen = WHOLE if everything else namespaces or DEFAULT
        taken = take_snapshot(chosen, branches=branches)
    if not as_json or output != _STDOUT:
        write_whole(output, to_json(taken).encode())
    if as_json:
        kinds = [api.kind for api in taken.apis.values()]
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        print_json({"torch": taken.torch, "commit": taken.commit, "apis": counts, "output": str(output)})
    return OK


@command("diff")
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
def _diff(old: Path, new: Path, as_json: bool) -> int:
    """List what is new, removed, moved or called differently in snapshot NEW compared with OLD."""
    from ..gaps.diff import compare_snapshots
    from ..gaps.snapshot import load_snapshot

    found = compare_snapshots(load_snapshot(old), load_snapshot(new))
    if as_json:
        print_json(found.to_dict())
        return OK
    rows = [
        *(("new", one.name, one.kind) for one in found.added),
        *(("removed", one.name, one.kind) for one in found.removed),
        *(("moved", was.name, f"to {now.name}") for was, now in found.moved),
        *(
            ("breaks" if change.breaking else "changed", name, change.text)
            for name, changes in found.changed
            for change in changes
        ),
    ]
    print_table(("", "name", "how"), rows, title=f"{found.old} → {found.new}")
    echo(
        f"{len(found.added)} new, {len(found.removed)} removed, {len(found.moved)} moved, "
        f"{len(found.changed)} called differently"
    )
    return OK


@command("log")
@_compared
@_OUTPUT
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "csv", "json", "html"]),
    default="markdown",
    show_default=True,
    help="How to write it.",
)
def _log(output: Path, form: str, as_json: bool, **options: Any) -> int:
    """Write the gap log: every difference, with the decision about it."""
    with data_on(output):
        found = _analyze(**options)
    from ..gaps.render import FORMATS

    write_whole(output, FORMATS["json" if as_json else form](found).encode())
    return OK


@command("check")
@_compared
@click.option("--uncalled", is_flag=True, help="List the names whose behavior was not compared by a call.")
def _check(uncalled: bool, as_json: bool, **options: Any) -> int:
    """Fail if a gap has no explanation, is back after a fix, or has a decision but no longer exists.

    Exits with 1 if there is such a problem.
    """
    found = _analyze(**options)
    if as_json:
        listed = {"not_called": list(found.not_called)} if uncalled else {}
        print_json(
            {
                **_counts(found),
                "gaps": len(found.entries),
                "problems": list(found.problems),
                **listed,
            }
        )
    else:
        for name in found.not_called if uncalled else ():
            echo(f"not called: {name}")
        for problem in found.problems:
            echo(f"problem: {problem}")
        echo(f"{len(found.entries)} gap(s), {len(found.problems)} problem(s)")
        echo(found.calls())
    return FAILURES if found.problems else OK


@command("plan")
@_compared
@click.option("--limit", type=click.IntRange(1), help="Show the first ones only.")
def _plan(limit: int | None, as_json: bool, **options: Any) -> int:
    """List the gaps that are left to fix, most urgent first: silent before loud, used before unused."""
    found = _analyze(**options)
    left = found.plan()[:limit]
    if as_json:
        print_json(
            {**_counts(found), "plan": [json.loads(json.dumps(vars(one), default=str)) for one in left]}
        )
        return OK
    rows = [(one.priority, one.uses, one.id, one.api, one.kind, one.description, one.action) for one in left]
    print_table(("priority", "uses", "id", "name", "kind", "gap", "to do"), rows)
    echo(f"{len(left)} gap(s) to work on")
    echo(found.calls())
    return OK


@command("scaffold")
@click.argument("gap_id", metavar="ID")
@_compared
@_OUTPUT
def _scaffold(gap_id: str, output: Path, as_json: bool, **options: Any) -> int:
    """Write a test that fails because of the gap ID of PROVIDER.

    For the provider redirect, the test checks the four settings that redirected code can meet.
    """
    with data_on(output):
        found = _analyze(**options)
    entry = found.find(gap_id)
    from ..gaps.scaffold import scaffold

    text = scaffold(entry, found.provider)
    if not as_json or output != _STDOUT:
        write_whole(output, text.encode())
    if as_json:
        print_json({"id": entry.id, "api": entry.api, "test": text})
    return OK


for _command in (_snapshot, _diff, _log, _check, _plan, _scaffold):
    gaps.add_command(_command)
