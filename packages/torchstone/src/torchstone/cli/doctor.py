"""``torchstone doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from optest.console import ENVIRONMENT, OK, echo, print_json, print_table

from .command import command
from .output import progress

if TYPE_CHECKING:
    from ..parity.installation import Installation


@command("doctor")
@click.option("--backend", is_flag=True, help="Only check that the compile backend is registered and works.")
def doctor(backend: bool, as_json: bool) -> int:
    """Show versions, devices, plugins and cache, and try the compile backend.

    Exits with 3 if there is a problem.
    """
    with progress() as stage:
        stage("looking")
        from ..parity.installation import inspect_backend, inspect_installation

        found = (inspect_backend if backend else inspect_installation)(stage)
    if as_json:
        print_json(found.to_dict())
    else:
        if not backend:
            _print(found)
        _print_backend(found)
    return ENVIRONMENT if found.problems else OK


def _print(found: Installation) -> None:
    print_table(
        ("package", "version"), [(name, text or "not installed") for name, text in found.versions.items()]
    )
    print_table(
        ("platform", "kind", "devices", "from"),
        [(one["name"], one["kind"], ", ".join(one["devices"]), one["source"]) for one in found.platforms],
    )
    print_table(("setting", "value"), list(found.settings.items()))
    echo(f"tested with PyTorch {', '.join(found.tested_pytorch)}")
    if found.unavailable:
        print_table(("not available with this PyTorch", "why"), list(found.unavailable.items()))
    if found.cache is not None:
        used = f"{found.cache.programs} programs, {found.cache.bytes:,} of {found.cache.max_bytes:,} bytes"
        state = used if found.cache.enabled else "switched off"
        echo(f"cache {found.cache.directory}: {found.cache.problem or state}")


def _print_backend(found: Installation) -> None:
    registered = "registered" if found.backend_registered else "not registered"
    echo(f"compile backend: {registered}, {'works' if found.backend_works else 'does not work'}")
    for problem in found.problems:
        echo(f"problem: {problem}")
    echo("all in order" if not found.problems else f"{len(found.problems)} problem(s)")
